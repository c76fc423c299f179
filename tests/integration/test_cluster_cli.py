"""The commands of a cluster as a user types them, against a master that answers over real HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import serving
from fake_master import FakeMaster
from typer.testing import CliRunner, Result

from penstock.cli.main import command_line
from penstock.cluster.job_documents import JobStatus
from penstock.web.master_api import make_master_api
from support.waiting import eventually

TOKEN = "ef" * 32
DEADLINE = 180.0

JOB = """
import penstock as ps

job = ps.Job("counting")
source = job.source("in", ps.LogSource("in"))
source >> job.task("count", ps.Count()) >> job.sink("out", ps.LogSink("out"))
"""
WRONG = """
import penstock as ps

job = ps.Job("counting")
job.source("in", ps.LogSource("in"))
"""


class Shell:
    """Runs ``penstock`` in a home of its own that knows a master."""

    def __init__(self, home: Path, master: FakeMaster, url: str) -> None:
        self.home, self.master, self.url = home, master, url
        self.file = home / "job.py"
        self.file.write_text(JOB)
        folder = home / "cluster"
        folder.mkdir(mode=0o700)
        (folder / "masters.json").write_text(json.dumps({"urls": [url]}))
        (folder / "token").write_text(TOKEN + "\n")
        (folder / "token").chmod(0o600)

    def run(self, *arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(command_line(arguments), list(arguments), catch_exceptions=False)
        assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
        assert "Traceback" not in result.stderr
        return result

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "-o", "json").stdout)

    def submit(self) -> None:
        self.run("submit", str(self.file))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", *arguments],
            env={**os.environ, "PENSTOCK_HOME": str(self.home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_MASTER_URL", raising=False)
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    master = FakeMaster(TOKEN)
    with serving(lambda _: make_master_api(master, TOKEN, hosts=["127.0.0.1"])) as url:
        yield Shell(tmp_path, master, url)


def test_submit_with_everything(shell: Shell) -> None:
    done = shell.json(
        *("submit", f"{shell.file}:job", "--cores", "2", "--memory", "3g", "--executors", "2"),
        *("--executor-cores", "3", "--executor-memory", "512MiB", "--node", "n1", "--node", "n2"),
        *("--label", "disk=ssd", "--conf", "spark.x=y", "--until", "drained", "--fresh"),
    )
    assert (done["name"], done["generation"]) == ("counting", 1)
    spec = shell.master.specs["counting"]
    asked = spec.settings.resources
    assert (asked.cores, asked.memory, asked.executors) == (2, 3 << 30, 2)
    assert (asked.executor_cores, asked.executor_memory) == (3, 512 << 20)
    assert (spec.entry, spec.settings.placement.nodes, spec.settings.placement.labels) == (
        "job.py:job",
        ("n1", "n2"),
        {"disk": "ssd"},
    )
    assert (spec.settings.spark.conf, spec.settings.until, spec.fresh) == ({"spark.x": "y"}, "drained", True)
    assert [vertex["name"] for vertex in spec.structure["vertices"]] == ["in", "count", "out"]
    assert spec.bundle in shell.master.bundles


def test_submit_a_folder(shell: Shell) -> None:
    folder = shell.home / "jobs-code"
    folder.mkdir()
    (folder / "words.py").write_text("NAME = 'counting'\n")
    (folder / "main.py").write_text(
        JOB.replace('"counting"', "NAME").replace("import", "from words import NAME\nimport", 1)
    )
    shell.run("submit", str(folder), "--entry", "main.py")
    assert shell.master.specs["counting"].entry == "main.py"
    assert "--entry" in shell.run("submit", str(folder), code=2).stderr


def test_a_wrong_graph_is_refused_before_anything_is_sent(shell: Shell) -> None:
    shell.file.write_text(WRONG)
    result = shell.run("submit", str(shell.file), code=1)
    assert "job 'counting' has" in result.stderr
    shell.run("submit", str(shell.home / "nothing.py"), code=1)
    assert shell.master.changes == 0


@pytest.mark.parametrize(
    "options",
    [
        ("--memory", "much"),
        ("--label", "disk"),
        ("--conf", "x=y"),
        ("--until", "noon"),
        ("--cores", "0"),
        ("--entry", "job.py"),
    ],
)
def test_options_that_make_no_sense_are_wrong_usage(shell: Shell, options: tuple[str, str]) -> None:
    shell.run("submit", str(shell.file), *options, code=2)
    assert shell.master.changes == 0


def test_submit_twice_is_refused(shell: Shell) -> None:
    shell.submit()
    assert "runs already" in shell.run("submit", str(shell.file), code=1).stderr


def test_submit_and_wait(shell: Shell) -> None:
    done = shell.json("submit", str(shell.file), "--wait")
    assert (done["phase"], done["workers"][0]["node"]) == ("RUNNING", "n1")
    shell.master.phases["counting"] = JobStatus("FAILED", "it failed 5 times", 0.0)
    process = shell.start("submit", str(shell.file), "--until", "drained", "--wait")
    try:
        eventually("the job runs", lambda: shell.master.phases["counting"].phase == "RUNNING")
        assert process.poll() is None
        shell.master.phases["counting"] = JobStatus("FAILED", "the disk is full", 9.0)
        _, said = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "has failed: the disk is full" in said


def test_list_and_status(shell: Shell) -> None:
    shell.submit()
    assert "counting" in shell.run("list").stdout
    assert [job["name"] for job in shell.json("list")] == ["counting"]
    shell.run("kill", "counting")
    assert shell.json("list") == []
    assert [job["phase"] for job in shell.json("list", "--all")] == ["ENDED"]
    assert shell.json("status")["leader"] == "m1"
    assert "m1" in shell.run("status").stdout
    assert shell.json("status", "counting")["spec"]["entry"] == "job.py"
    shown = shell.run("status", "counting").stdout
    assert "ENDED" in shown
    assert "2.0 GiB" in shown


def test_kill_migrate_scale_resubmit(shell: Shell) -> None:
    shell.submit()
    assert shell.json("migrate", "counting", "--to", "n2")["name"] == "counting"
    assert shell.master.places["counting"] == "n2"
    assert shell.json("rebalance", "--dry-run")["applied"] is False
    assert "counting: n1 -> n2 (n1 is full)" in shell.run("rebalance").stdout
    shell.run("scale", "counting", "--executors", "4", "--cores", "2", "--node", "n1", "--memory", "1g")
    spec = shell.master.specs["counting"]
    assert (
        spec.settings.resources.executors,
        spec.settings.resources.cores,
        spec.settings.resources.memory,
    ) == (4, 2, 1 << 30)
    assert spec.settings.placement.nodes == ("n1",)
    shell.run("scale", "counting", "--node", "")
    assert shell.master.specs["counting"].settings.placement.nodes == ()
    assert "name what to change" in shell.run("scale", "counting", code=2).stderr
    done = shell.json("kill", "counting", "--drain", "--wait")
    assert done["phase"] == "ENDED"
    assert shell.master.specs["counting"].drain
    assert "ended already" in shell.run("kill", "counting", code=1).stderr
    assert shell.json("resubmit", "counting", "--fresh")["name"] == "counting"
    assert shell.master.specs["counting"].fresh
    assert shell.json("resubmit", "counting", "--wait")["workers"][0]["revision"] == 6


def test_forget(shell: Shell) -> None:
    shell.submit()
    assert "kill it first" in shell.run("forget", "counting", code=1).stderr
    shell.run("kill", "counting")
    assert shell.json("forget", "counting")["name"] == "counting"
    assert shell.master.forgotten == {"counting": False}
    assert "counting: " in shell.run("forget", "counting", "--data").stderr
    assert shell.master.forgotten == {"counting": True}
    shell.run("forget", "nothing", code=4)


def test_update(shell: Shell) -> None:
    shell.submit()
    before = shell.master.specs["counting"].bundle
    shell.file.write_text(JOB + "\n# newer\n")
    assert shell.json("update", "counting", str(shell.file))["generation"] == 2
    assert shell.master.specs["counting"].bundle != before
    shell.file.write_text(JOB.replace('"counting"', '"other"'))
    assert "defines job 'other'" in shell.run("update", "counting", str(shell.file), code=1).stderr


WITH_PARAMETERS = JOB.replace("job =", 'SINCE, KEY = ps.params["since"], ps.params["api_key"]\njob =')


def test_parameters_are_sent_kept_shown_and_changed(shell: Shell) -> None:
    shell.file.write_text(WITH_PARAMETERS)
    assert "'since' is not given" in shell.run("submit", str(shell.file), code=1).stderr
    assert shell.master.changes == 0
    given = (
        "--param",
        "since=2026-01-01",
        "--param",
        "api_key=abcdef",
        "--env",
        "REGION=eu",
        "--env",
        "DB_USER",
    )
    shell.run("submit", str(shell.file), *given, "--env", "DB_TOKEN=hush")
    spec = shell.master.specs["counting"]
    assert spec.params == {"since": "2026-01-01", "api_key": "abcdef"}
    assert spec.env == {"REGION": "eu", "DB_USER": None, "DB_TOKEN": "hush"}
    shown = shell.run("status", "counting").stdout
    assert "api_key=*(hidden)*, since=2026-01-01" in shown
    assert "DB_TOKEN=*(hidden)*, DB_USER (from the node), REGION=eu" in shown
    answer = shell.run("status", "counting", "-o", "json").stdout
    assert "abcdef" not in answer
    assert "hush" not in answer
    shell.file.write_text(WITH_PARAMETERS + "# newer")
    shell.run("update", "counting", str(shell.file), "--param", "since=2026-02-01")
    assert shell.master.specs["counting"].params == {"since": "2026-02-01", "api_key": "abcdef"}
    done = shell.run("update", "counting", "--param", "since=2026-03-01", "--env", "REGION=us", "--wait")
    assert "counting: " in done.stderr
    spec = shell.master.specs["counting"]
    assert (spec.generation, spec.params["since"], spec.env["REGION"]) == (3, "2026-03-01", "us")


@pytest.mark.parametrize(
    "options",
    [
        ("--param", "since"),
        ("--param", "a=1", "--param", "a=2"),
        ("--param", "from-date=1"),
        ("--env", "PENSTOCK_HOME=/tmp"),
        ("--env", "A", "--env", "A=1"),
    ],
)
def test_parameters_that_make_no_sense_are_wrong_usage(shell: Shell, options: tuple[str, ...]) -> None:
    shell.run("submit", str(shell.file), *options, code=2)
    assert shell.master.changes == 0
    shell.submit()
    changes = shell.master.changes
    shell.run("update", "counting", *options, code=2)
    shell.run("update", "counting", "--param", "a=1", "--k", "1", code=2)
    assert shell.master.changes == changes


def test_replicas_are_asked_for_and_shown(shell: Shell) -> None:
    asked = ("submit", str(shell.file), "--k", "1", "--recovery", "next-window", "--publisher", "primary")
    assert "its state is not in windows of time" in shell.run(*asked, code=1).stderr
    shell.file.write_text(JOB.replace("ps.Count()", 'ps.Count(), window=ps.TimeWindow("1m")'))
    shell.run(*asked)
    spec = shell.master.specs["counting"]
    assert (
        spec.settings.replicas.k,
        spec.settings.replicas.recovery,
        spec.settings.replicas.publisher,
        spec.settings.replicas.warm_standby,
    ) == (1, "next-window", "primary", False)
    assert "k-safe" in shell.run("list").stdout
    assert [job["safety"] for job in shell.json("list")] == ["k-safe"]
    shown = shell.run("status", "counting").stdout
    for told in ("k-safe", "k=1, publisher primary, recovery next-window", "n2", "batch 41 of count"):
        assert told in shown
    done = shell.json("status", "counting")
    assert (done["k"], [replica["batch"] for replica in done["replicas"]]) == (1, [40, 41])


def test_replicas_that_the_code_does_not_allow_are_refused_before_anything_is_sent(shell: Shell) -> None:
    shell.file.write_text(JOB.replace('"counting"', '"counting", guarantee="at-least-once"'))
    assert "replicas are exactly-once" in shell.run("submit", str(shell.file), "--k", "1", code=1).stderr
    assert shell.master.changes == 0
    shell.file.write_text(JOB)
    shell.run("submit", str(shell.file), "--k", "1")
    assert shell.master.specs["counting"].structure["replicas"]["k"] == 0, "that is what the code says"


def test_replicas_change_without_new_code_and_with_it(shell: Shell) -> None:
    shell.submit()
    before = shell.master.specs["counting"]
    done = shell.json("update", "counting", "--k", "1", "--publisher", "primary", "--wait")
    assert (done["k"], done["generation"], done["safety"]) == (1, 1, "k-safe")
    assert shell.master.specs["counting"].bundle == before.bundle
    assert "needs 4 nodes" in shell.run("update", "counting", "--k", "3", code=1).stderr
    shell.run("update", "counting", "--k", "0", "--publisher", "first", "--warm-standby")
    spec = shell.master.specs["counting"]
    assert (
        spec.settings.replicas.k,
        spec.settings.replicas.publisher,
        spec.settings.replicas.warm_standby,
        spec.agreed,
    ) == (0, "first", True, True)
    shell.file.write_text(JOB + "\n# newer\n")
    assert (
        shell.json("update", "counting", str(shell.file), "--k", "1", "--no-warm-standby")["generation"] == 2
    )
    spec = shell.master.specs["counting"]
    assert (spec.settings.replicas.k, spec.settings.replicas.warm_standby, spec.bundle != before.bundle) == (
        1,
        False,
        True,
    )


@pytest.mark.parametrize(
    "options",
    [(), ("--k", "-1"), ("--recovery", "soon"), ("--publisher", "both"), ("--warm-standby=cold",)],
)
def test_changes_of_replicas_that_make_no_sense_are_wrong_usage(
    shell: Shell, options: tuple[str, ...]
) -> None:
    shell.submit()
    changes = shell.master.changes
    shell.run("update", "counting", *options, code=2)
    assert (
        "are for new code" in shell.run("update", "counting", "--k", "1", "--entry", "job.py", code=2).stderr
    )
    assert shell.master.changes == changes


def test_nodes_and_alarms(shell: Shell) -> None:
    shell.submit()
    shown = shell.run("nodes").stdout
    assert "127.0.0.3" in shown
    assert "disk=ssd" in shown
    assert [node["name"] for node in shell.json("nodes")] == ["n1", "n2"]
    assert "LIVE|running" in shell.run("nodes", "n1").stdout
    assert shell.json("nodes", "n1")["jobs"] == ["counting"]
    assert "it failed 5 times" in shell.run("alarms").stdout
    assert [alarm["id"] for alarm in shell.json("alarms")] == ["job-failed.old"]
    assert shell.json("alarms", "--clear", "job-failed.old") == []
    assert "no alarms" in shell.run("alarms").stdout


def test_what_is_not_there_has_a_code_of_its_own(shell: Shell) -> None:
    shell.submit()
    for command in (
        ("status", "nobody"),
        ("kill", "nobody"),
        ("resubmit", "nobody"),
        ("logs", "nobody"),
        ("scale", "nobody", "--cores", "1"),
        ("migrate", "nobody", "--to", "n1"),
        ("migrate", "counting", "--to", "n9"),
        ("nodes", "n9"),
        ("nodes", "../n1"),
        ("alarms", "--clear", "nothing"),
    ):
        assert "there is no" in shell.run(*command, code=4).stderr or command == ("nodes", "../n1")


def test_a_cluster_that_is_not_there(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert "cannot be reached" in shell.run("list", "--master-url", url, code=3).stderr
    assert shell.run("list", "--master-url", f"{url},{shell.url}").exit_code == 0
    (shell.home / "cluster" / "masters.json").unlink()
    assert "penstock up" in shell.run("list", code=3).stderr
    shell.run("list", "--master-url", "ftp://somewhere", code=1)


def test_the_token_must_be_there_right_and_secret(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    token = shell.home / "cluster" / "token"
    token.chmod(0o644)
    assert "can be read by others" in shell.run("list", code=1).stderr
    token.unlink()
    assert "PENSTOCK_TOKEN" in shell.run("list", code=3).stderr
    monkeypatch.setenv("PENSTOCK_TOKEN", "wrong")
    assert "the token is wrong" in shell.run("list", code=1).stderr
    monkeypatch.setenv("PENSTOCK_TOKEN", TOKEN)
    monkeypatch.setenv("PENSTOCK_MASTER_URL", shell.url)
    shell.run("list")


def test_logs(shell: Shell) -> None:
    shell.submit()
    for second in range(5):
        shell.master.say("counting", second, f"batch {second}")
    shell.master.say("counting", 9, "\x1b[2Jcleared")
    shown = shell.run("logs", "counting").stdout.splitlines()
    assert len(shown) == 6
    assert shown[0].endswith("info     n1 worker batch 0 batch=0")
    assert "\x1b" not in shown[5]
    assert len(shell.run("logs", "counting", "--tail", "2").stdout.splitlines()) == 2
    assert shell.run("logs", "counting", "--since", "10m").stdout == ""
    found = shell.run("logs", "counting", "--since", "2026-01-01T00:00:04+00:00", "-o", "json").stdout
    assert [json.loads(line)["batch"] for line in found.splitlines()] == [4, 9]
    shell.run("logs", "counting", "--since", "noon", code=2)


def test_logs_are_followed_until_interrupted(shell: Shell) -> None:
    shell.submit()
    shell.master.say("counting", 1, "first")
    process = shell.start("logs", "counting", "-f")
    try:
        assert process.stdout is not None
        assert "first" in process.stdout.readline()
        shell.master.say("counting", 2, "second")
        assert "second" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert (process.returncode, said) == (0, "")


@pytest.mark.parametrize("command", ["list", "status", "nodes", "alarms"])
def test_watching_goes_on_until_interrupted(shell: Shell, command: str) -> None:
    process = shell.start(command, "--watch", "-o", "json")
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        shell.submit()
        shell.master.clear("job-failed.old")
        # It may have looked again before anything had changed. Who never sees it waits for ever.
        while json.loads(process.stdout.readline()) == first:
            pass
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert (process.returncode, said) == (0, "")
