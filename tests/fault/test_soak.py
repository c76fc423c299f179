"""A long run with restarts in place and kill -9: the output is exact, memory and files do not grow."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from killing import kill, read, start_process
from soak_job import A_SECOND, END, KEYS, WINDOW

from penstock.engine.storage.ledger import Ledger
from penstock.errors import LogError
from penstock.log import Log, log_folder
from penstock.record import Record
from support.engines import LOCAL, SPARK
from support.waiting import DEADLINE

PROGRAM = Path(__file__).with_name("soak_job.py")
EVERY = 0.05
"""Seconds between two appends of the parent."""
RECORDS = 50

MEMORY_GROWTH = 1.15
FILES_GROWTH = 1.10
FILES_SLACK = 40
"""How much more the last third may show than the middle one: Java's heap and the last batches breathe."""
FILES_LEFT = 110
"""How many files may be left in the end, however many batches there were: 40 of them are ledger entries.

Those of state that the newest entry stands for are not counted: how long a chain is depends on its bytes.
"""

STATE_BATCHES = 280
"""For how many batches shared files of state may be kept: 256 for a chain, 20 until they are removed."""


@dataclass(frozen=True)
class Plan:
    """How long to run, how often to restart in place and after how long to kill, in seconds.

    A process is restarted in place twice at least before it is killed, however slow the machine is. The last
    one lives for as long.
    """

    engine: str
    length: float
    batches: int
    """How many batches there are at the least: one file too many for each is then more than may be left."""
    restart: float
    kill: float
    kills: int


SHORT = Plan(LOCAL, length=0, batches=120, restart=0.5, kill=2, kills=2)
LONG = Plan(SPARK, length=7 * 60, batches=120, restart=20, kill=60, kills=6)


@pytest.mark.parametrize("plan", [SHORT, pytest.param(LONG, marks=pytest.mark.full)], ids=["short", "long"])
@pytest.mark.timeout(3600)
def test_restarts_and_kills_leave_the_output_exact_and_nothing_behind(tmp_path: Path, plan: Plan) -> None:
    log = Log.create(log_folder("input", tmp_path), retain_consumed=True)
    count, kills = 0, 0
    files: list[float] = []
    command = [sys.executable, str(PROGRAM), plan.engine, str(plan.restart)]
    process = start_process(command, tmp_path)
    began = started = tidied = time.monotonic()
    try:
        while (
            time.monotonic() - began < plan.length
            or kills < plan.kills
            or _batches(tmp_path / "jobs") < plan.batches
        ):
            log.append([Record(None, number) for number in range(count, count + RECORDS)])
            count += RECORDS
            lived = time.monotonic() - started >= plan.kill and _restarts(tmp_path, process.pid) >= 2
            if lived and kills < plan.kills:
                kill(process)
                kills += 1
                process = start_process(command, tmp_path)
                started = time.monotonic()
            assert process.poll() is None, process.communicate()[1]
            if plan is SHORT and time.monotonic() - tidied >= 1:
                _tidy(tmp_path / "logs")
                tidied = time.monotonic()
            files.append(_files(tmp_path / "jobs") + _files(tmp_path / "logs"))
            time.sleep(EVERY)
        (tmp_path / END).touch()
        _, said = process.communicate(timeout=DEADLINE)
    finally:
        if process.poll() is None:
            kill(process)
    assert process.returncode == 0, said

    restarts = _notes(tmp_path / "restarts")
    print(
        f"{count} records, {kills} kills, {len(restarts)} restarts in place, median"
        f" {median(note['seconds'] for note in restarts):.2f} s"
    )
    _check_output(tmp_path, count)
    _check_windows(tmp_path, count)
    _tidy_up(tmp_path / "logs")
    chains = _files_of_state(tmp_path / "jobs" / "soak")
    left = _files(tmp_path / "jobs") + _files(tmp_path / "logs") - chains
    batches = _batches(tmp_path / "jobs")
    assert left <= FILES_LEFT, f"{left} files, and {chains} of state, are left after {batches} batches"
    if plan is SHORT:  # How much there is meanwhile, and how long a process lives, is up to the machine.
        return
    _check_flat("files of the job and its logs", files, FILES_GROWTH, FILES_SLACK)
    memory = _notes(tmp_path / "memory")
    for kind in ("driver", "java", "workers"):
        _check_flat(kind, [note[kind] for note in memory], MEMORY_GROWTH, 0)


def _check_output(home: Path, count: int) -> None:
    out = read(home, "out")
    assert Counter(record.value[1] for record in out) == Counter(range(count))
    of_key = Counter(number % KEYS for number in range(count))
    numbered = Counter((key, n + 1) for key, total in of_key.items() for n in range(total))
    assert Counter((record.key, record.value[0]) for record in out) == numbered
    sums = Counter[int]()
    for number in range(count):
        sums[number % KEYS] += number
    last = {record.key: record.value for record in read(home, "maxima")}
    assert last == {key: max(sums[n] for n in range(KEYS) if n % 7 == key) for key in range(7)}


def _check_windows(home: Path, count: int) -> None:
    """Every window that is closed by now has given its count, once."""
    expected = Counter[tuple[int, float]]()
    for number in range(count):
        for start in WINDOW.starts(number / A_SECOND):
            expected[number % KEYS, start + WINDOW.size] += 1
    newest = (count - 1) / A_SECOND - WINDOW.watermark
    closed = {window: n for window, n in expected.items() if window[1] <= newest}
    given = Counter((r.key, round((r.ts or 0.0) + 0.001, 3), r.value) for r in read(home, "windows"))
    assert given == Counter((key, end, n) for (key, end), n in closed.items())


def _check_flat(what: str, samples: list[float], growth: float, slack: float) -> None:
    """The last third is not above the middle one, by more than is allowed for."""
    third = len(samples) // 3
    middle, last = median(samples[third : 2 * third]), median(samples[2 * third :])
    print(f"{what}: {middle:.0f} in the middle third, {last:.0f} in the last one, {max(samples):.0f} at most")
    assert last <= middle * growth + slack, f"{what} grow: {middle:.0f}, then {last:.0f}"


def _tidy(logs: Path) -> None:
    """Do what upkeep does. After a slow round it rests for twenty times as long: too much of a short run."""
    for folder in logs.iterdir():
        with suppress(LogError):  # Its folder is there a moment before the log is; or others hold it.
            log = Log.open(folder)
            log.retain()
            log.compact()


def _tidy_up(logs: Path) -> None:
    """Do it until it changes nothing: a round merges segments of one size, and theirs the next one does."""
    left = _files(logs) + 1
    while _files(logs) < left:
        left = _files(logs)
        _tidy(logs)


def _files(folder: Path) -> int:
    # Unlike rglob, it does not mind that folders go while it looks.
    return sum(len(files) for _, _, files in os.walk(folder))


def _files_of_state(job: Path) -> int:
    """Return how many files of state the newest ledger entry stands for, and see that there are no others.

    All buckets change with every batch, so that their chains are short, and files of chains before are gone.
    """
    entry = Ledger(job / "ledger").latest()
    assert entry is not None
    own = {bucket: head.least_own_files for bucket, head in entry.state.items()}
    assert own == {bucket: _files(job / "state" / f"{bucket:05d}") for bucket in own}
    shared = os.listdir(job / "state" / "shared")
    assert min(int(name.partition("-")[0]) for name in shared) > entry.batch - STATE_BATCHES
    return sum(own.values()) + len(shared)


def _batches(jobs: Path) -> int:
    """Return the number of the newest batch in the ledger; -1 before the first."""
    entries = [int(file.stem) for file in jobs.glob("*/ledger/*.json") if file.stem.isdigit()]
    return max(entries, default=-1)


def _restarts(home: Path, pid: int) -> int:
    notes = _notes(home / "restarts") if (home / "restarts").exists() else []
    return sum(1 for note in notes if note["pid"] == pid)


def _notes(file: Path) -> list[dict[str, Any]]:
    """Read notes; the last one before a kill may be cut short."""
    lines = file.read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]
