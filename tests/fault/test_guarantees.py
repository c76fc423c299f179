"""What each guarantee promises when the process group is killed at the worst moments, and what it does not.

The job dies three times: in its code within a batch, after that batch was decided and before its sinks
have it, and after they have it and before anybody knows.
"""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from guarantee_job import AFTER, BATCHES, BEFORE, SIZE, WITHIN
from killing import MASTER, fill, finish, read, start_job

import penstock as ps
from penstock.log import log_folder

pytestmark = pytest.mark.timeout(1800)

JOB = Path(__file__).with_name("guarantee_job.py")
DEATHS = 3
ALL = Counter(range(SIZE * BATCHES))


def numbers_of(batch: int) -> Counter[int]:
    """The records of a batch."""
    return Counter(range(batch * SIZE, (batch + 1) * SIZE))


@dataclass
class Outcome:
    """What is found after the last run."""

    log: Counter[int]
    """In the log, a transactional sink."""
    places: list[tuple[int, int]]
    """The same with the number that the state gave each record, in order."""
    lines: Counter[int]
    """In a file to which a sink adds that is not transactional."""
    seen: Counter[int]
    """How often the code has seen a record."""


def _run(home: Path, guarantee: str) -> Outcome:
    fill(home, SIZE * BATCHES, partitions=1)
    for _ in range(DEATHS):
        process = start_job(JOB, home, GUARANTEE=guarantee)
        said = finish(process)
        assert process.returncode == -signal.SIGKILL, said
    process = start_job(JOB, home, GUARANTEE=guarantee)
    said = finish(process)
    assert process.returncode == 0, said
    places = sorted((place, number) for _, (place, number), _ in read(home, "output"))
    return Outcome(
        log=Counter(number for _, number in places),
        places=places,
        lines=Counter(map(int, (home / "lines").read_text().split())),
        seen=Counter(map(int, (home / "seen").read_text().split())),
    )


def test_exactly_once(tmp_path: Path) -> None:
    found = _run(tmp_path, "exactly-once")
    assert found.places == [(n + 1, n) for n in range(SIZE * BATCHES)]
    # A sink that cannot be asked twice is not: the batch that was decided and not shown is lost to it.
    assert found.lines == ALL - numbers_of(BEFORE)
    assert found.seen - ALL, "the code has seen the batch that it died in twice"
    assert set(found.seen - ALL) <= set(numbers_of(WITHIN))


def test_at_least_once(tmp_path: Path) -> None:
    found = _run(tmp_path, "at-least-once")
    # The batch that was shown before anybody knew is shown again, to either kind of sink. None is lost.
    assert found.log == ALL + numbers_of(AFTER)
    assert found.lines == ALL + numbers_of(AFTER)
    # The state is exact all the same: a repeated record has the number that it had.
    assert set(found.places) == {(n + 1, n) for n in range(SIZE * BATCHES)}
    repeated = set(numbers_of(WITHIN) + numbers_of(BEFORE) + numbers_of(AFTER))
    assert set(numbers_of(AFTER)) < set(found.seen - ALL) <= repeated


def test_at_most_once(tmp_path: Path) -> None:
    found = _run(tmp_path, "at-most-once")
    # The batch in which the job died is given up. One that was decided reaches a transactional sink.
    assert found.log == ALL - numbers_of(WITHIN)
    assert found.lines == ALL - numbers_of(WITHIN) - numbers_of(BEFORE)
    # The state lacks what was lost, and nothing else.
    assert [place for place, _ in found.places] == list(range(1, SIZE * (BATCHES - 1) + 1))
    assert max(found.seen.values()) == 1, "no code sees a record twice"
    assert set(ALL - found.seen) < set(numbers_of(WITHIN))


@pytest.mark.parametrize("lost", ["nothing", "the plan", "the checkpoint"])
def test_at_most_once_a_batch_that_code_fails_in_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Whatever Spark still knows of the batch: the note of the intent decides."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    log = ps.Log.create(log_folder("in"))
    log.append([ps.Record("k", value) for value in (1, 1, 1, 0, 1, 1)])

    def job(guarantee: str = "at-most-once") -> ps.Job:
        job = ps.Job("given-up", guarantee=guarantee)
        source = job.source("in", ps.LogSource("in", max_records_per_batch=2))
        inverse = job.task("inverse", lambda r: (r.key, 1 // r.value))
        source >> inverse >> job.task("sum", ps.Sum()) >> job.sink("out", ps.LogSink("out"))
        return job

    with pytest.raises(ps.TaskError, match="'inverse'"):
        ps.run(job(), master=MASTER)
    checkpoint = tmp_path / "jobs" / "given-up" / "checkpoint"
    if lost == "the plan":
        (checkpoint / "offsets" / "1").unlink()
    elif lost == "the checkpoint":
        shutil.rmtree(checkpoint)
    # The promise was given when the batch was begun, whatever is promised now.
    report = ps.run(job("exactly-once" if lost == "nothing" else "at-most-once"), master=MASTER)
    assert report.records_in == 2
    assert [record.value for record in read(tmp_path, "out")] == [2, 4]


@pytest.fixture(autouse=True)
def _the_deaths_are_in_order() -> None:
    assert WITHIN < BEFORE < AFTER < BATCHES
