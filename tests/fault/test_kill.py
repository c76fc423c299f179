"""kill -9 of a running job's whole process group, again and again: what comes out is as promised."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path

import pytest
from kill_job import ENDLESS, KEYS, ROUNDS, rounds_of
from killing import fill, finish, kill_within, read, start_job

RECORDS = 1_000_000
JOB = Path(__file__).with_name("kill_job.py")


def _run_and_kill(home: Path, kills: int, guarantee: str) -> None:
    fill(home, RECORDS)
    dice = random.Random(kills)
    # The more kills, the more batches: there must be work left for the last of them.
    settings = {"KILL_BATCH": 240_000 // kills, "KILL_GUARANTEE": guarantee}
    for _ in range(kills):
        process = start_job(JOB, home, **settings)
        kill_within(home, "killed", process, dice)
        assert process.returncode == -signal.SIGKILL, "the job ended before it was killed: give it more to do"
    process = start_job(JOB, home, **settings)
    said = finish(process)
    assert process.returncode == 0, said


def _expected_numbers() -> Counter[tuple[int, int]]:
    return Counter((n % KEYS, n) for n in range(RECORDS) if n % ENDLESS)


def _expected_visits() -> Counter[tuple[int, int]]:
    # An endless number comes by once, and once more for each round that it is allowed.
    visits_of_key = Counter[int]()
    for number in range(RECORDS):
        visits_of_key[number % KEYS] += min(rounds_of(number), ROUNDS) + 1
    return Counter((key, n + 1) for key, total in visits_of_key.items() for n in range(total))


@pytest.mark.parametrize("kills", [6, pytest.param(20, marks=pytest.mark.full)], ids=["6-kills", "20-kills"])
@pytest.mark.timeout(2400)
def test_output_is_exact_whenever_the_job_is_killed(tmp_path: Path, kills: int) -> None:
    _run_and_kill(tmp_path, kills, "exactly-once")
    assert Counter((r.key, r.value) for r in read(tmp_path, "numbers")) == _expected_numbers()
    assert Counter((r.key, r.value) for r in read(tmp_path, "visits")) == _expected_visits()
    discarded = read(tmp_path, "killed.discarded")
    endless = [number for number in range(RECORDS) if number % ENDLESS == 0]
    assert Counter(r.value["value"][0] for r in discarded) == Counter(endless)
    assert {(r.value["vertex"], r.value["count"]) for r in discarded} == {("tally", ROUNDS + 1)}


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_at_least_once_nothing_is_lost_whenever_the_job_is_killed(tmp_path: Path) -> None:
    _run_and_kill(tmp_path, 6, "at-least-once")
    assert {(r.key, r.value) for r in read(tmp_path, "numbers")} == set(_expected_numbers())
    assert {(r.key, r.value) for r in read(tmp_path, "visits")} == set(_expected_visits())


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_at_most_once_nothing_is_repeated_whenever_the_job_is_killed(tmp_path: Path) -> None:
    _run_and_kill(tmp_path, 6, "at-most-once")
    numbers = Counter((r.key, r.value) for r in read(tmp_path, "numbers"))
    assert not numbers - _expected_numbers()
    assert numbers.total() > RECORDS // 2, "a kill costs the batch that ran, not more"
    visits = Counter((r.key, r.value) for r in read(tmp_path, "visits"))
    assert not visits - _expected_visits()
    # The state lacks what was lost, and nothing else: the visits of a key are numbered without a gap.
    last = Counter[int]()
    for key, visit in visits:
        last[key] = max(last[key], visit)
    assert last.total() == visits.total()
