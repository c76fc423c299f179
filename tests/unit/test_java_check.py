"""scripts/ensure_java.sh: finds a Java 17 or later, installs one where it may, else says what to do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "ensure_java.sh"
TOOLS = ("bash", "sed", "head", "chmod", "cat")


class Machine:
    """A PATH of our own, so that nothing of the real machine is seen or changed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        self.environment = {"PATH": str(self.bin)}
        self.calls = root / "calls"
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None
            (self.bin / tool).symlink_to(found)
        self.user(1000)

    def command(self, path: Path, body: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{self.bin / 'bash'}\n{body}\n")
        path.chmod(0o755)

    def user(self, uid: int) -> None:
        self.command(self.bin / "id", f"echo {uid}")

    def java(self, version: str, home: Path | None = None) -> None:
        folder = self.bin if home is None else home / "bin"
        self.command(folder / "java", f"""echo 'openjdk version "{version}" 2025-04-15' >&2""")

    def apt(self, offers: str) -> None:
        """Install an apt-get that has one package, which brings Java 21."""
        java = self.bin / "java"
        self.command(
            self.bin / "apt-get",
            f"""echo "$*" >> {self.calls}
            if [[ "$1" == install ]]; then
                [[ "${{@: -1}}" == {offers} ]] || exit 100
                printf '%s\\n' '#!{self.bin / "bash"}' "echo 'openjdk version \\"21.0.2\\"' >&2" > {java}
                chmod +x {java}
            fi""",
        )

    def check(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.bin / "bash"), str(SCRIPT)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def assert_one_sentence(result: subprocess.CompletedProcess[str]) -> None:
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "Java 17 or later" in result.stderr


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.2", "25-ea"])
def test_a_new_enough_java_is_accepted_in_silence(machine: Machine, version: str) -> None:
    machine.java(version)
    result = machine.check()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21", "16.0.1"])
def test_an_old_java_is_refused_in_one_sentence(machine: Machine, version: str) -> None:
    machine.java(version)
    assert_one_sentence(machine.check())


def test_no_java_is_one_sentence(machine: Machine) -> None:
    assert_one_sentence(machine.check())


def test_java_home_goes_before_the_path(machine: Machine) -> None:
    home = machine.root / "jdk"
    machine.java("11.0.21")
    machine.java("17.0.15", home)
    machine.environment["JAVA_HOME"] = str(home)
    assert machine.check().returncode == 0


def test_a_java_home_without_java_is_named(machine: Machine) -> None:
    machine.java("17.0.15")
    machine.environment["JAVA_HOME"] = "/nowhere"
    result = machine.check()
    assert_one_sentence(result)
    assert "/nowhere" in result.stderr


def test_a_java_that_cannot_run_is_refused(machine: Machine) -> None:
    machine.command(machine.bin / "java", "exit 1")
    assert_one_sentence(machine.check())


def test_only_root_installs(machine: Machine) -> None:
    machine.apt("openjdk-17-jre-headless")
    assert_one_sentence(machine.check())
    assert not machine.calls.exists()


def test_root_installs_java_17(machine: Machine) -> None:
    machine.user(0)
    machine.apt("openjdk-17-jre-headless")
    assert machine.check().returncode == 0
    calls = machine.calls.read_text()
    assert "--no-install-recommends openjdk-17-jre-headless" in calls
    assert "default-jre-headless" not in calls


def test_root_installs_the_default_java_where_17_is_gone(machine: Machine) -> None:
    machine.user(0)
    machine.apt("default-jre-headless")
    assert machine.check().returncode == 0


def test_an_install_that_fails_is_said(machine: Machine) -> None:
    machine.user(0)
    machine.apt("nothing")
    result = machine.check()
    assert result.returncode == 1
    assert "Java 17 or later" in result.stderr.splitlines()[-1]
