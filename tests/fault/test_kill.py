"""kill -9 of a running job's whole process group, again and again: what comes out is exact."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from kill_job import ENDLESS, KEYS, ROUNDS, rounds_of

from penstock.log import Log, log_folder
from penstock.record import Record

RECORDS = 1_000_000
JOB = Path(__file__).with_name("kill_job.py")
DEADLINE = 300.0


def _fill(home: Path) -> None:
    log = Log.create(log_folder("input", home), partitions=2)
    for start in range(0, RECORDS, 20_000):
        log.append([Record(None, number) for number in range(start, start + 20_000)])


def _start(home: Path, kills: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "penstock.cli.main",
            "run",
            str(JOB),
            "--until",
            "drained",
            "--master",
            "local[2]",
        ],
        # The more kills, the more batches: there must be work left for the last of them.
        env={**os.environ, "PENSTOCK_HOME": str(home), "KILL_BATCH": str(240_000 // kills)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _batches(home: Path) -> int:
    ledger = home / "jobs" / "killed" / "ledger"
    names = [path.name for path in ledger.glob("*.json")] if ledger.exists() else []
    return max((int(name[:-5]) + 1 for name in names), default=0)


def _kill_within(home: Path, process: subprocess.Popen[str], dice: random.Random) -> None:
    """Kill the group at a random moment: from before its first batch to well within a later one."""
    goal = _batches(home) + dice.choice([0, 1, 1, 2, 3])
    moment = dice.uniform(0.0, 0.6)
    deadline = time.monotonic() + DEADLINE
    while _batches(home) < goal and process.poll() is None:
        assert time.monotonic() < deadline, "the job makes no progress"
        time.sleep(0.01)
    time.sleep(moment)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _read(home: Path, name: str) -> list[Record]:
    log = Log.open(log_folder(name, home))
    return [
        record
        for partition in range(log.partitions)
        for records in log.read(partition, log.begin(partition))
        for record in records
    ]


@pytest.mark.parametrize("kills", [6, pytest.param(20, marks=pytest.mark.full)], ids=["6-kills", "20-kills"])
@pytest.mark.timeout(2400)
def test_output_is_exact_whenever_the_job_is_killed(tmp_path: Path, kills: int) -> None:
    _fill(tmp_path)
    dice = random.Random(kills)
    killed = 0
    while killed < kills:
        process = _start(tmp_path, kills)
        _kill_within(tmp_path, process, dice)
        assert process.returncode == -signal.SIGKILL, "the job ended before it was killed: give it more to do"
        killed += 1
    process = _start(tmp_path, kills)
    _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, said

    endless = [number for number in range(RECORDS) if number % ENDLESS == 0]
    expected_numbers = Counter((n % KEYS, n) for n in range(RECORDS) if n % ENDLESS)
    # An endless number comes by once, and once more for each round that it is allowed.
    visits_of_key = Counter[int]()
    for number in range(RECORDS):
        visits_of_key[number % KEYS] += min(rounds_of(number), ROUNDS) + 1
    expected_visits = Counter((key, n + 1) for key, total in visits_of_key.items() for n in range(total))

    assert Counter((r.key, r.value) for r in _read(tmp_path, "numbers")) == expected_numbers
    assert Counter((r.key, r.value) for r in _read(tmp_path, "visits")) == expected_visits
    discarded = _read(tmp_path, "killed.discarded")
    assert Counter(r.value["value"][0] for r in discarded) == Counter(endless)
    assert {(r.value["vertex"], r.value["count"]) for r in discarded} == {("tally", ROUNDS + 1)}
