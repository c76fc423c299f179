"""``penstock run`` as a user meets it: in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from penstock.log import Log, log_folder
from penstock.record import Record
from support import local_penstock
from support.engines import EITHER, SPARK
from support.running import MASTER
from support.waiting import DEADLINE, eventually

JOB = """
import penstock as ps

job = ps.Job("counting")
source = job.source("in", ps.LogSource("in", max_records_per_batch=100))
source >> job.task("count", ps.Count()) >> job.sink("out", ps.LogSink("out"))
"""


class Shell:
    """Runs ``penstock`` in a home of its own and watches over what it starts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.file = home / "job.py"
        self.file.write_text(JOB)

    def start(self, *arguments: str, engine: str = SPARK) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*local_penstock.command(engine), *arguments],
            env={**local_penstock.environment(), "PENSTOCK_HOME": str(self.home)},
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, said = process.communicate(timeout=DEADLINE)
        return subprocess.CompletedProcess(arguments, process.returncode, out, said)

    def fill(self, count: int) -> None:
        log = Log.create(log_folder("in", self.home), exist_ok=True)
        log.append([Record(n % 5, n) for n in range(count)])

    def batches(self) -> int:
        return len(list((self.home / "jobs" / "counting" / "ledger").glob("*.json")))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def _family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    parent = psutil.Process(process.pid)
    return [parent, *parent.children(recursive=True)]


def _listening(member: psutil.Process) -> list[str]:
    """The addresses a process listens on; none if it has ended, as Spark's helpers do at any time."""
    try:
        connections = member.net_connections(kind="tcp")
    except psutil.NoSuchProcess:
        return []
    return [connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN]


def _lives(member: psutil.Process) -> bool:
    try:
        return member.is_running() and member.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _gone(family: list[psutil.Process]) -> bool:
    return not any(_lives(member) for member in family)


def _is_java(member: psutil.Process) -> bool:
    try:
        return member.name() == "java"
    except psutil.NoSuchProcess:  # Spark is started by others, which end at any time.
        return False


def _is_planner(member: psutil.Process) -> bool:
    try:
        return "pyspark.sql.streaming.python_streaming_source_runner" in member.cmdline()
    except psutil.NoSuchProcess:
        return False


RUN = ("run", "job.py", "--master", MASTER)


def _ended(process: subprocess.Popen[str]) -> str:
    """Wait until a run has ended as it was asked to; return what it has said."""
    _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize("engine_name", EITHER)
def test_a_drained_run_reports_and_leaves_no_process(shell: Shell, engine_name: str) -> None:
    shell.fill(250)
    process = shell.start(*RUN, "--until", "drained", "-o", "json", engine=engine_name)
    eventually("a batch", lambda: shell.batches() > 0 or process.poll() is not None)
    family = _family(process)
    out, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, said
    report = json.loads(out)
    assert (report["records_in"], report["batches"], report["lag"]) == (250, 3, 0)
    assert "counting: in " in said
    assert "Traceback" not in said
    eventually("the end of all processes", lambda: _gone(family))


def test_ctrl_c_stops_after_the_batch_and_leaves_no_process(shell: Shell) -> None:
    """The real thing: nothing listens beyond this machine, and the whole group gets the signal, Java too."""
    shell.fill(50_000)
    process = shell.start(*RUN)
    eventually("a batch", lambda: shell.batches() > 0)
    family = _family(process)
    listening = [address for member in family for address in _listening(member)]
    os.killpg(process.pid, signal.SIGINT)
    assert "counting: stopped after" in _ended(process)
    eventually("the end of all processes", lambda: _gone(family))
    assert listening, "the driver listens somewhere"
    assert {ip.replace("::ffff:", "") for ip in listening} <= {"127.0.0.1", "::1"}
    assert shell.batches() < 500, "it was stopped, it did not end by itself"
    job = shell.home / "jobs" / "counting"
    spark = [int(path.name) for path in (job / "checkpoint" / "commits").glob("[0-9]*")]
    ledger = [int(path.stem) for path in (job / "ledger").glob("*.json")]
    assert max(spark) == max(ledger), "the last batch is committed on both sides"


@pytest.mark.parametrize("engine_name", EITHER)
def test_a_polite_signal_stops_after_the_batch(shell: Shell, engine_name: str) -> None:
    shell.fill(50_000)
    process = shell.start(*RUN, engine=engine_name)
    eventually("a batch", lambda: shell.batches() > 0)
    process.send_signal(signal.SIGTERM)
    assert "counting: stopped after" in _ended(process)
    assert shell.batches() < 500, "it was stopped, it did not end by itself"


@pytest.mark.full
def test_a_second_signal_stops_at_once(shell: Shell) -> None:
    shell.file.write_text(
        JOB.replace("source >>", "import time\nsource >> job.task('slow', lambda r: time.sleep(3) or r) >>")
    )
    shell.fill(100)
    process = shell.start(*RUN)
    eventually("a planned batch", (shell.home / "jobs/counting/checkpoint/offsets/0").exists)
    family = _family(process)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=2.0)
    # Two signals that come before the first is heard are one.
    eventually("the first signal is heard", (shell.home / "jobs/counting/stop").exists)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    eventually("the end of all processes", lambda: _gone(family))


STUCK_JAVA = """#!/bin/sh
case "$*" in *-version*) echo 'openjdk version "17.0.1"' >&2; exit 0 ;; esac
sleep 1000 &
wait
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_spark_starts_ends_everything_at_once(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """With a Java that never comes to an end of its start, so that the signal cannot come too late."""
    java = shell.home / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(STUCK_JAVA)
    java.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    shell.fill(100)
    process = shell.start(*RUN)
    eventually("Java", lambda: any(map(_sleeps, _family(process))))
    family = _family(process)
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    out, said = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out) == (130, "")
    assert said == "counting: starting Spark …\ncounting: interrupted while Spark was starting\n"
    assert _gone(family[1:]), "what it has started is gone before it is itself"
    assert not shell.batches()


def _sleeps(member: psutil.Process) -> bool:
    try:
        return member.name() == "sleep"
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("engine_name", EITHER)
def test_a_closed_pipe_is_no_error(shell: Shell, engine_name: str) -> None:
    shell.file.write_text(JOB.replace('ps.LogSink("out")', "ps.ConsoleSink()"))
    shell.fill(10_000)
    process = shell.start(*RUN, "--until", "drained", engine=engine_name)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    assert process.wait(timeout=DEADLINE) == 0, said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param(
            "planner",
            "error: job 'counting' failed: the process that plans its batches has died: it was killed",
            marks=pytest.mark.full,
        ),
        ("java", "error: job 'counting' failed: Spark's Java process no longer responds"),
    ],
)
def test_a_process_that_is_killed_is_told_in_a_sentence(shell: Shell, name: str, says: str) -> None:
    shell.fill(50_000)
    process = shell.start(*RUN)
    eventually("a batch", lambda: shell.batches() > 0)
    family = _family(process)
    [killed] = filter(_is_java if name == "java" else _is_planner, family)
    killed.kill()
    out, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1, said
    assert says in said
    assert "Traceback" not in said + out
    assert "py4j" not in said + out
    eventually("the end of all processes", lambda: _gone(family))


def test_explain(shell: Shell) -> None:
    result = shell.run("explain", "job.py")
    assert result.returncode == 0
    assert "count" in result.stdout
    document = json.loads(shell.run("explain", "job.py:counting", "-o", "json").stdout)
    assert document["format"] == "penstock.job"
    assert [vertex["name"] for vertex in document["vertices"]] == ["in", "count", "out"]


def test_the_command_line_is_light() -> None:
    code = (
        "import sys, penstock.cli.main; penstock.cli.main.command_line();"
        "print(sorted({'pyspark', 'pandas', 'numpy', 'pyarrow'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
