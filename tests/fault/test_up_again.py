"""A job on a cluster that goes down in the middle of its work, and comes up again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import JOB, Feeder, check_exact, committed, free_port, wait_for_outputs

from penstock.processes.process_control import OsProcesses
from support import lab_up
from support.engines import EITHER, SPARK
from support.waiting import DEADLINE, eventually

SMALL = ("--nodes", "1", "--masters", "1", "--zk", "1", "--memory", "8g", "--cores", "2")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    processes = OsProcesses()
    processes.signal(tmp_path / "cluster" / "up" / "keeper", signal.SIGKILL)
    for folder in processes.below(tmp_path):
        processes.kill_all(folder)


def penstock(home: Path, engine: str, *arguments: str) -> str:
    """Run ``penstock``, as a user does; if its cluster is to run jobs without Spark, in a lab."""
    lab = [str(Path(lab_up.__file__)), json.dumps({"idle": True, "engine": engine})]
    program = ["-m", "penstock.cli.main"] if engine == SPARK else lab
    done = subprocess.run(
        [sys.executable, *program, *arguments],
        env={**os.environ, "PENSTOCK_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, f"penstock {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("engine", EITHER)
def test_a_job_goes_on_with_the_next_up(home: Path, engine: str) -> None:
    job = home / "again.py"
    job.write_text(JOB.format(name="again"))
    up = ("up", "--detach", "--port", str(free_port()), *SMALL)
    with Feeder(home, "again") as feeder:
        penstock(home, engine, *up)
        penstock(home, engine, "submit", str(job))
        eventually("the job runs", lambda: committed(home, "again") >= 2)
        penstock(home, engine, "down")
        assert OsProcesses().below(home) == []
        before = committed(home, "again")
        penstock(home, engine, *up)
        eventually("the job goes on", lambda: committed(home, "again") > before)
        feeder.stop()
        wait_for_outputs(home, "again", feeder.count)
    penstock(home, engine, "down")
    check_exact(home, "again", feeder.count)
    assert OsProcesses().below(home) == []
