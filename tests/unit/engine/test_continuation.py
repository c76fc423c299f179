"""Going on with another number of buckets or another graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_support import LocalRun

import penstock as ps
from penstock.engine.continuation import change_buckets, obstacles
from penstock.engine.ledger import Entry, Ledger
from penstock.engine.state import read_bucket
from penstock.keys import key_hash


class Visits(ps.StatefulTask):
    """Counts, and sends each value round once more."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        return (state or 0) + len(values), [(key, value) for value in values]


def _job(task: Any = None) -> ps.Job:
    job = ps.Job("job", max_iterations=1)
    source = job.source("in", ps.MemorySource())
    keyed = job.task("keyed", task or Visits())
    source >> keyed >> keyed
    keyed >> job.sink("out", ps.MemorySink())
    return job


@pytest.mark.parametrize(("before", "after"), [(2, 5), (5, 2), (3, 1), (1, 4)])
def test_state_and_records_under_way_move_to_other_buckets(tmp_path: Path, before: int, after: int) -> None:
    run = LocalRun(_job(), tmp_path, buckets=before)
    run.step([(f"key{n}", n) for n in range(100)])
    folders = run.blueprint.folders
    last = Entry(0, {}, {}, run.feedback, run.heads, before)
    ledger = Ledger(folders.ledger)
    ledger.commit(last)

    entry = change_buckets(folders, last, after)

    assert ledger.latest() == entry
    assert entry.buckets == after
    held = {}
    for bucket, head in entry.state.items():
        for key, state in read_bucket(folders.state, bucket, head)["keyed"].items():
            assert key_hash(key) % after == bucket
            held[key] = state
    assert held == {f"key{n}": 1 for n in range(100)}

    going_on = LocalRun(_job(), tmp_path, buckets=after)
    going_on.batch, going_on.heads, going_on.feedback = 1, dict(entry.state), list(entry.feedback)
    going_on.step()
    assert going_on.out("out") == {(f"key{n}", n): 1 for n in range(100)}
    assert len(going_on.discarded.records) == 100


def _last(**changes: Any) -> Entry:
    fields: dict[str, Any] = {"batch": 3, "end": {}, "state": {0: object()}, **changes}
    return Entry(**fields)


def test_the_same_job_goes_on() -> None:
    assert obstacles(_job().to_dict(), _job().to_dict(), _last(feedback=["f"])) == []


def test_other_code_of_stateless_tasks_is_no_obstacle() -> None:
    def job(function: Any) -> ps.Job:
        job = ps.Job("job")
        job.source("in", ps.MemorySource()) >> job.task("map", function) >> job.sink("out", ps.MemorySink())
        return job

    assert obstacles(job(lambda r: r).to_dict(), job(str).to_dict(), _last()) == []


def test_lost_sources_and_states_are_obstacles() -> None:
    other = ps.Job("job")
    other.source("other", ps.MemorySource()) >> other.sink("out", ps.MemorySink())
    found = obstacles(_job().to_dict(), other.to_dict(), _last())
    assert [reason.split()[0] for reason in found] == ["source", "the"]
    assert "'in'" in found[0]
    assert "'keyed'" in found[1]


def test_a_state_that_another_class_would_read_is_an_obstacle() -> None:
    [reason] = obstacles(_job().to_dict(), _job(ps.Count()).to_dict(), _last())
    assert "Count" in reason


def test_records_under_way_need_the_graph_they_are_in() -> None:
    changed = _job()
    changed.vertex("in") >> changed.task("more", lambda r: r) >> changed.vertex("out")
    assert obstacles(_job().to_dict(), changed.to_dict(), _last()) == []
    [reason] = obstacles(_job().to_dict(), changed.to_dict(), _last(feedback=["f"]))
    assert "drained" in reason
