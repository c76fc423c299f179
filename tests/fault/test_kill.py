"""kill -9 of a running job's whole process group, again and again: what comes out is as promised.

On real Spark; ``test_local_kills.py`` kills hundreds of workers without it.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path

import pytest
from kill_expectation import ROUNDS, Expectation
from kill_job import ENDLESS, KEYS
from killing import fill, finish, kill_within, read, start_job

JOB = Path(__file__).with_name("kill_job.py")


def _run_and_kill(home: Path, kills: int, guarantee: str, records: int = 1_000_000) -> Expectation:
    fill(home, records)
    dice = random.Random(kills)
    # The more kills, the more batches: there must be work left for the last of them.
    settings = {"KILL_BATCH": records // (4 * kills), "KILL_GUARANTEE": guarantee}
    for _ in range(kills):
        process = start_job(JOB, home, **settings)
        kill_within(home, "killed", process, dice)
        assert process.returncode == -signal.SIGKILL, "the job ended before it was killed: give it more to do"
    process = start_job(JOB, home, **settings)
    said = finish(process)
    assert process.returncode == 0, said
    return Expectation(records, KEYS, ENDLESS)


@pytest.mark.parametrize(
    ("kills", "records"),
    [
        (1, 40_000),
        pytest.param(6, 1_000_000, marks=pytest.mark.full),
        pytest.param(20, 1_000_000, marks=pytest.mark.full),
    ],
    ids=["1-kill", "6-kills", "20-kills"],
)
@pytest.mark.timeout(2400)
def test_output_is_exact_whenever_the_job_is_killed(tmp_path: Path, kills: int, records: int) -> None:
    expected = _run_and_kill(tmp_path, kills, "exactly-once", records)
    numbers = expected.numbers()
    assert Counter((r.key, r.value) for r in read(tmp_path, "numbers")) == numbers
    assert Counter((r.key, r.value) for r in read(tmp_path, "visits")) == expected.visits()
    discarded = read(tmp_path, "killed.discarded")
    assert Counter(r.value["value"][0] for r in discarded) == expected.discarded()
    assert {(r.value["vertex"], r.value["count"]) for r in discarded} == {("tally", ROUNDS + 1)}
    lines = [line for path in (tmp_path / "files").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert Counter(map(int, lines)) == Counter(number for _, number in numbers)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_at_least_once_nothing_is_lost_whenever_the_job_is_killed(tmp_path: Path) -> None:
    expected = _run_and_kill(tmp_path, 6, "at-least-once")
    assert {(r.key, r.value) for r in read(tmp_path, "numbers")} == set(expected.numbers())
    assert {(r.key, r.value) for r in read(tmp_path, "visits")} == set(expected.visits())


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_at_most_once_nothing_is_repeated_whenever_the_job_is_killed(tmp_path: Path) -> None:
    expected = _run_and_kill(tmp_path, 6, "at-most-once")
    numbers = Counter((r.key, r.value) for r in read(tmp_path, "numbers"))
    assert not numbers - expected.numbers()
    assert numbers.total() > expected.count // 2, "a kill costs the batch that ran, not more"
    visits = Counter((r.key, r.value) for r in read(tmp_path, "visits"))
    assert not visits - expected.visits()
    # The state lacks what was lost, and nothing else: the visits of a key are numbered without a gap.
    last = Counter[int]()
    for key, visit in visits:
        last[key] = max(last[key], visit)
    assert last.total() == visits.total()
