"""``penstock run`` as a user meets it: in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from penstock.log import Log, log_folder
from penstock.record import Record

DEADLINE = 300.0

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

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", *arguments],
            env={**os.environ, "PENSTOCK_HOME": str(self.home)},
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


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


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


def test_a_drained_run_reports_and_leaves_no_process(shell: Shell) -> None:
    shell.fill(250)
    process = shell.start("run", "job.py", "--until", "drained", "--master", "local[2]", "-o", "json")
    _wait(lambda: shell.batches() > 0 or process.poll() is not None)
    family = _family(process) if process.poll() is None else []
    out, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, said
    report = json.loads(out)
    assert (report["records_in"], report["batches"], report["lag"]) == (250, 3, 0)
    assert "counting: in " in said
    assert "Traceback" not in said
    _wait(lambda: _gone(family))


def test_everything_listens_on_loopback_only(shell: Shell) -> None:
    shell.fill(10)
    process = shell.start("run", "job.py", "--master", "local[2]")
    _wait(lambda: shell.batches() > 0)
    listening = [address for member in _family(process) for address in _listening(member)]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE)
    assert listening, "the driver listens somewhere"
    assert {ip.replace("::ffff:", "") for ip in listening} <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_stops_after_the_batch(shell: Shell, number: signal.Signals) -> None:
    shell.fill(50_000)
    process = shell.start("run", "job.py", "--master", "local[2]")
    _wait(lambda: shell.batches() > 0)
    family = _family(process)
    # As a terminal does it: the whole group gets the signal, Java and the workers too.
    os.killpg(process.pid, number) if number is signal.SIGINT else process.send_signal(number)
    _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, said
    assert "counting: stopped after" in said
    assert "Traceback" not in said
    _wait(lambda: _gone(family))
    committed = shell.batches()
    assert committed < 500, "it was stopped, it did not end by itself"
    spark = list((shell.home / "jobs" / "counting" / "checkpoint" / "commits").glob("[0-9]*"))
    assert max(int(path.name) for path in spark) == max(
        int(path.stem) for path in (shell.home / "jobs" / "counting" / "ledger").glob("*.json")
    ), "the last batch is committed on both sides"


def test_a_second_signal_stops_at_once(shell: Shell) -> None:
    shell.file.write_text(
        JOB.replace("source >>", "import time\nsource >> job.task('slow', lambda r: time.sleep(3) or r) >>")
    )
    shell.fill(100)
    process = shell.start("run", "job.py", "--master", "local[2]")
    _wait((shell.home / "jobs" / "counting" / "checkpoint" / "offsets" / "0").exists)
    family = _family(process)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=2.0)
    # Two signals that come before the first is heard are one.
    _wait((shell.home / "jobs" / "counting" / "stop").exists)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    _wait(lambda: _gone(family))


def test_user_code_that_raises_ends_with_its_place_and_no_noise(shell: Shell) -> None:
    shell.file.write_text(JOB.replace("source >>", "source >> job.task('bad', lambda r: 1 // r.value) >>"))
    shell.fill(5)
    result = shell.run("run", "job.py", "--until", "drained", "--master", "local[2]")
    assert result.returncode == 1
    assert "error: job 'counting', vertex 'bad': ZeroDivisionError" in result.stderr
    assert "Record(key=0, value=0" in result.stderr
    assert "py4j" not in result.stderr
    assert "org.apache" not in result.stderr


def test_a_signal_while_spark_starts_is_a_clean_stop(shell: Shell) -> None:
    shell.fill(100)
    process = shell.start("run", "job.py", "--master", "local[2]")
    _wait(lambda: any(map(_is_java, _family(process))))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, said
    assert "Traceback" not in said


def test_a_closed_pipe_is_no_error(shell: Shell) -> None:
    shell.file.write_text(JOB.replace('ps.LogSink("out")', "ps.ConsoleSink()"))
    shell.fill(10_000)
    process = shell.start("run", "job.py", "--until", "drained", "--master", "local[2]")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    assert process.wait(timeout=DEADLINE) == 0, said
    assert "Traceback" not in said


def test_spark_that_does_not_start_is_one_clear_error(shell: Shell) -> None:
    shell.fill(1)
    for arguments in (["--master", "bogus"], ["--conf", "spark.driver.memory=zzz"]):
        result = shell.run("run", "job.py", *arguments)
        assert result.returncode == 1
        assert "error: Spark does not start" in result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("file", "arguments", "complaint"),
    [
        (None, ["missing.py"], "there is no file missing.py"),
        (None, ["missing.py:job"], "there is no file missing.py"),
        ("x = (", ["job.py"], "job.py, line 1"),
        ("import nowhere_to_be_found", ["job.py"], "job.py, line 1: ModuleNotFoundError"),
        ("x = 1", ["job.py"], "defines no job"),
        (JOB + "\nother = ps.Job('other')", ["job.py"], "defines several jobs"),
        (JOB, ["job.py:nope"], "has no job 'nope'"),
        (JOB.replace("job.task", "job.sink"), ["job.py"], "[bad-sink]"),
        (JOB, ["job.py", "--for", "soon"], "not a duration"),
        (JOB, ["job.py", "--until", "later"], "--until takes 'drained'"),
        (JOB, ["job.py", "--for", "1s", "--until", "drained"], "exclude each other"),
        (JOB, ["job.py", "--conf", "nonsense"], "--conf takes"),
        (JOB, ["job.py"], "penstock log create in"),
    ],
)
def test_a_users_mistake_is_one_clear_error(
    shell: Shell, file: str | None, arguments: list[str], complaint: str
) -> None:
    if file is not None:
        shell.file.write_text(file)
    result = shell.run("run", *arguments)
    wrong_usage = any(option in arguments for option in ("--for", "--until", "--conf"))
    assert result.returncode == (2 if wrong_usage else 1)
    assert complaint in result.stderr.replace("\n│ ", " ")
    assert "Traceback" not in result.stderr


def test_explain(shell: Shell) -> None:
    result = shell.run("explain", "job.py")
    assert result.returncode == 0
    assert "count" in result.stdout
    document = json.loads(shell.run("explain", "job.py:counting", "-o", "json").stdout)
    assert document["format"] == "penstock.job"
    assert [vertex["name"] for vertex in document["vertices"]] == ["in", "count", "out"]


def test_the_command_line_is_light() -> None:
    code = (
        "import sys, penstock, penstock.cli.main;"
        "print(sorted({'pyspark', 'pandas', 'numpy', 'pyarrow'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
