"""A disk that gets full under a job: it ends with a word on that, and goes on exactly when there is room."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import pytest
from bad_rows import Said, Shell, line

from support.engines import LOCAL, SPARK
from support.running import MASTER

SMALL = "small file system"

FILL = '''
import os, random

def fill(r):
    """Use up the disk that the job runs on, at the second record and while it is told to."""
    if r.value == 2 and os.path.exists("{flag}"):
        with open("{ballast}", "ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
    return r.value % 2, r.value

def large(r):
    return r.key, random.Random(r.value).randbytes(50_000)

class Keep(ps.StatefulTask):
    """Keeps much, and emits little."""
    def update(self, key, values, state):
        state = [*(state or []), *(random.Random(value).randbytes(50_000) for value in values)]
        return state, [len(state)]
'''

FLOWS = {
    "sink": 'source >> task >> job.task("large", large) >> sink',
    "state": 'source >> task >> job.task("keep", Keep) >> sink',
    "ledger": 'source >> task >> job.task("drop", lambda r: r if r.value == 5 else None) >> sink',
}
LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (45_000, resource.RLIM_INFINITY))"


@dataclass
class Disk:
    """Penstock's home, on a file system of three megabytes or else with a limit on the size of files."""

    folder: Path
    real: bool
    engine: str

    def drain(self, jobs: Shell, file: str, *, full: bool) -> Said:
        if self.real or not full:
            return jobs.drain(file)
        return jobs.process(
            "run", file, "--until", "drained", "--master", MASTER, before=LIMIT, engine=self.engine
        )


@pytest.fixture
def disk(shell: Shell, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Disk]:
    """Who may not mount a file system has the limit each time."""
    kind, engine = request.param
    folder = shell.home / "disk"
    folder.mkdir()
    monkeypatch.setenv("PENSTOCK_HOME", str(folder))
    real = kind == SMALL and _run("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder))
    yield Disk(folder, real, engine)
    if real:
        assert _run("umount", "-l", str(folder))


def _run(*command: str) -> bool:
    return (
        bool(which(command[0])) and not subprocess.run(command, capture_output=True, check=False).returncode
    )


@pytest.mark.parametrize(
    ("disk", "jobs", "flow"),
    [
        pytest.param((SMALL, SPARK), SPARK, "sink", id="sink-spark"),
        *(
            pytest.param((SMALL, engine), engine, flow, id=f"{flow}-{engine}", marks=marks)
            for flow, engine, marks in (
                ("sink", LOCAL, []),
                ("state", LOCAL, []),
                ("ledger", LOCAL, []),
                ("state", SPARK, [pytest.mark.full]),
                ("ledger", SPARK, [pytest.mark.full]),
            )
        ),
        pytest.param(("limit", LOCAL), LOCAL, "sink", id="limit-local"),
        pytest.param(("limit", SPARK), SPARK, "sink", id="limit-spark", marks=pytest.mark.full),
    ],
    indirect=["disk", "jobs"],
)
def test_a_disk_that_gets_full(jobs: Shell, disk: Disk, flow: str) -> None:
    flow = flow if disk.real else "sink"
    jobs.fill("in", [1, 2, 3, 4, 5])
    flag, ballast = jobs.home / "flag", disk.folder / "ballast"
    if disk.real:
        flag.touch()
    text = line(
        f"full-{flow}",
        before=FILL.replace("{flag}", str(flag)).replace("{ballast}", str(ballast)),
        source='ps.LogSource("in", max_records_per_batch=1)',
        task="fill",
        flow=FLOWS[flow],
    )
    file = jobs.write(f"full_{flow}.py", text)
    for _ in range(2 if disk.real else 1):
        said = disk.drain(jobs, file, full=True)
        assert said.code == 1, said.err
        assert f"job 'full-{flow}'" in said.err
        assert "no space left" in said.err.lower()
    flag.unlink(missing_ok=True)
    ballast.unlink(missing_ok=True)
    said = disk.drain(jobs, file, full=False)
    assert said.code == 0, said.err
    found = sorted(str(entry["key"]) for entry in jobs.read("out"))
    assert found == (["1"] if flow == "ledger" else ["0", "0", "1", "1", "1"]), "each record once"
