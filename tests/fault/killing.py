"""Jobs as process groups of their own, and how to kill them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from penstock.log import Log, log_folder
from penstock.record import Record
from support.waiting import DEADLINE, eventually

MASTER = "local[2]"


def fill(home: Path, count: int, *, partitions: int = 2) -> None:
    """Write the numbers from 0 on into the log ``input``."""
    log = Log.create(log_folder("input", home), partitions=partitions)
    for start in range(0, count, 20_000):
        log.append([Record(None, number) for number in range(start, min(count, start + 20_000))])


def start_job(file: Path, home: Path, **environment: object) -> subprocess.Popen[str]:
    """Start ``penstock run`` in a process group of its own."""
    command = [sys.executable, "-m", "penstock.cli.main", "run", str(file)]
    return start_process([*command, "--until", "drained", "--master", MASTER], home, **environment)


def start_process(command: list[str], home: Path, **environment: object) -> subprocess.Popen[str]:
    """Start a program in a process group of its own, with its temporary files in its home."""
    scratch = home / "scratch"
    scratch.mkdir(exist_ok=True)
    given = {name: str(value) for name, value in environment.items()}
    return subprocess.Popen(
        command,
        env={**os.environ, "PENSTOCK_HOME": str(home), "SPARK_LOCAL_DIRS": str(scratch), **given},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def batches(home: Path, job: str) -> int:
    """How many batches of a job have happened."""
    ledger = home / "jobs" / job / "ledger"
    names = [path.name for path in ledger.glob("*.json")] if ledger.exists() else []
    return max((int(name[:-5]) + 1 for name in names), default=0)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process group, and wait until its leader is gone."""
    if process.poll() is None:  # Else it has ended by itself, and its number may be another's.
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def finish(process: subprocess.Popen[str]) -> str:
    """Wait until a job has ended, and return what it said; kill it if that takes too long."""
    try:
        return process.communicate(timeout=DEADLINE)[1]
    finally:
        kill(process)


def kill_within(home: Path, job: str, process: subprocess.Popen[str], dice: random.Random) -> None:
    """Kill the group at a random moment: from before its first batch to well within a later one."""
    goal = batches(home, job) + dice.choice([0, 1, 1, 2, 3])
    moment = dice.uniform(0.0, 0.6)
    eventually(f"batch {goal}", lambda: batches(home, job) >= goal or process.poll() is not None)
    time.sleep(moment)
    kill(process)


def kill_in_batch(home: Path, job: str, process: subprocess.Popen[str]) -> None:
    """Kill the group of a job with vertices of Spark's own while a batch runs that is not its first."""
    planned = home / "jobs" / job / "planned"

    def runs() -> bool:
        assert process.poll() is None, "the job has ended before it was killed"
        try:
            return int(json.loads(planned.read_text())["batch"]) == batches(home, job) > 0
        except (FileNotFoundError, ValueError):
            return False  # It is being written.

    eventually("a batch that runs", runs)
    kill(process)


def read(home: Path, name: str) -> list[Record]:
    """Return all records of a log."""
    log = Log.open(log_folder(name, home))
    return [
        record
        for partition in range(log.partitions)
        for records in log.read(partition, log.begin(partition))
        for record in records
    ]
