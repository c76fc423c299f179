"""What each guarantee promises when the process group is killed at the worst moments, and what it does not.

The job dies three times: in its code within a batch, after a batch was decided and before its sinks have it,
and after they have it and before anybody knows.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from guarantee_job import AFTER, BATCHES, BEFORE, SIZE, WITHIN
from killing import fill, finish, read, start_job, start_process

from support.engines import EITHER, LOCAL, SPARK

pytestmark = pytest.mark.timeout(1800)

JOB = Path(__file__).with_name("guarantee_job.py")
ALL = Counter(range(SIZE * BATCHES))


@pytest.fixture(params=EITHER)
def engine(request: pytest.FixtureRequest) -> str:
    """On what the job runs."""
    return str(request.param)


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


def _run(
    home: Path, guarantee: str, engine: str, deaths: tuple[int, ...] = (WITHIN, BEFORE, AFTER)
) -> Outcome:
    fill(home, SIZE * BATCHES, partitions=1)
    settings = {"GUARANTEE": guarantee, "DEATHS": " ".join(map(str, deaths))}
    for code in [-signal.SIGKILL] * len(deaths) + [0]:
        if engine == LOCAL:
            process = start_process([sys.executable, str(JOB)], home, **settings)
        else:
            process = start_job(JOB, home, **settings)
        said = finish(process)
        assert process.returncode == code, said
    places = sorted((place, number) for _, (place, number), _ in read(home, "output"))
    return Outcome(
        log=Counter(number for _, number in places),
        places=places,
        lines=Counter(map(int, (home / "lines").read_text().split())),
        seen=Counter(map(int, (home / "seen").read_text().split())),
    )


def test_exactly_once(tmp_path: Path, engine: str) -> None:
    found = _run(tmp_path, "exactly-once", engine)
    assert found.places == [(n + 1, n) for n in range(SIZE * BATCHES)]
    # A sink that cannot be asked twice is not: the batch that was decided and not shown is lost to it.
    assert found.lines == ALL - numbers_of(BEFORE)
    assert found.seen - ALL, "the code has seen the batch that it died in twice"
    assert set(found.seen - ALL) <= set(numbers_of(WITHIN))


@pytest.mark.full
def test_exactly_once_on_spark_a_batch_that_was_shown_is_not_shown_again(tmp_path: Path) -> None:
    found = _run(tmp_path, "exactly-once", SPARK, (AFTER,))
    assert found.places == [(n + 1, n) for n in range(SIZE * BATCHES)]
    assert found.lines == ALL
    assert found.seen == ALL, "Spark does not know that the batch has happened, and the ledger does"


def test_at_least_once(tmp_path: Path, engine: str) -> None:
    found = _run(tmp_path, "at-least-once", engine)
    # The batch that was shown before anybody knew is shown again, to either kind of sink. None is lost.
    assert found.log == ALL + numbers_of(AFTER)
    assert found.lines == ALL + numbers_of(AFTER)
    # The state is exact all the same: a repeated record has the number that it had.
    assert set(found.places) == {(n + 1, n) for n in range(SIZE * BATCHES)}
    repeated = set(numbers_of(WITHIN) + numbers_of(BEFORE) + numbers_of(AFTER))
    assert set(numbers_of(AFTER)) < set(found.seen - ALL) <= repeated


def test_at_most_once(tmp_path: Path, engine: str) -> None:
    found = _run(tmp_path, "at-most-once", engine)
    # The batch in which the job died is given up. One that was decided reaches a transactional sink.
    assert found.log == ALL - numbers_of(WITHIN)
    assert found.lines == ALL - numbers_of(WITHIN) - numbers_of(BEFORE)
    # The state lacks what was lost, and nothing else.
    assert [place for place, _ in found.places] == list(range(1, SIZE * (BATCHES - 1) + 1))
    assert max(found.seen.values()) == 1, "no code sees a record twice"
    assert set(ALL - found.seen) < set(numbers_of(WITHIN))


@pytest.fixture(autouse=True)
def _the_deaths_are_in_order() -> None:
    assert WITHIN < BEFORE < AFTER < BATCHES
