"""A job on a cluster that goes down in the middle of its work, and comes up again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import JOB, Feeder, check_exact, committed, until, wait_for_outputs

from penstock.daemons.processes_os import OsProcesses

LONG = 300.0
"""Seconds in which a job must get on: Spark takes a minute to start on a machine that is busy."""
SMALL = ("--nodes", "1", "--masters", "1", "--zk", "1", "--memory", "8g", "--cores", "2")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    processes = OsProcesses()
    processes.signal(tmp_path / "cluster" / "up" / "keeper", signal.SIGKILL)
    for folder in processes.below(tmp_path):
        processes.kill_all(folder)


def penstock(home: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *arguments],
        env={**os.environ, "PENSTOCK_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"penstock {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


def test_a_job_goes_on_with_the_next_up(home: Path) -> None:
    job = home / "again.py"
    job.write_text(JOB.format(name="again"))
    port = str(10_000 + os.getpid() % 20_000)
    with Feeder(home, "again") as feeder:
        penstock(home, "up", "--detach", "--port", port, *SMALL)
        penstock(home, "submit", str(job))
        until(lambda: committed(home, "again") >= 2, "the job runs", LONG)
        penstock(home, "down")
        assert OsProcesses().below(home) == []
        before = committed(home, "again")
        penstock(home, "up", "--detach", "--port", port, *SMALL)
        until(lambda: committed(home, "again") > before, "the job goes on", LONG)
        feeder.stop()
        wait_for_outputs(home, "again", feeder.count, LONG)
    penstock(home, "down")
    check_exact(home, "again", feeder.count)
    assert OsProcesses().below(home) == []
