"""What a batch is planned to read."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.connect.driver_connectors import MemorySink, MemorySource
from penstock.engine.blueprint import Blueprint, make_blueprint
from penstock.engine.driver.batch_planner import BatchPlanner
from penstock.engine.storage.ledger import Ledger, LedgerEntry, skipped_entry
from penstock.errors import IncompatibleJobError
from penstock.graph.vertex import SIDE_STREAMS


def make(folder: Path, *, guarantee: str = "exactly-once", items: int = 10) -> Blueprint:
    job = ps.Job("planned", guarantee=guarantee)
    source = MemorySource(range(items), partitions=3, max_records_per_batch=6)
    job.source("in", source) >> job.task("count", ps.Count()) >> job.sink("out", MemorySink())
    blueprint = make_blueprint(job, folder=folder, buckets=2, sides={s: MemorySink() for s in SIDE_STREAMS})
    blueprint.folders.create()
    return blueprint


def test_each_part_knows_how_many_there_are(tmp_path: Path) -> None:
    planner = BatchPlanner(make(tmp_path))
    start = planner.begin()
    parts = planner.parts(start, planner.latest(start))
    assert [(part.number, part.planned, part.empty) for part in parts] == [(n, 3, False) for n in range(3)]
    assert [part.heads is not None for part in parts] == [True, False, False]


def test_a_batch_that_has_happened_has_a_single_empty_part(tmp_path: Path) -> None:
    blueprint = make(tmp_path)
    planner = BatchPlanner(blueprint)
    start = planner.begin()
    end = planner.latest(start)
    Ledger(blueprint.folders.ledger).commit(LedgerEntry(0, end))
    [part] = planner.parts(start, end)
    assert (part.planned, part.empty, part.heads) == (1, True, None)


def test_a_batch_that_ended_elsewhere_is_refused(tmp_path: Path) -> None:
    blueprint = make(tmp_path)
    planner = BatchPlanner(blueprint)
    start = planner.begin()
    Ledger(blueprint.folders.ledger).commit(LedgerEntry(0, {"batch": 1, "sources": {"in": {"0": 2}}}))
    with pytest.raises(IncompatibleJobError, match="batch 0 of job 'planned' was committed with"):
        planner.parts(start, {"batch": 1, "sources": {"in": {"0": 6}}})


def test_at_most_once_a_batch_that_reads_nothing_is_not_intended(tmp_path: Path) -> None:
    """Spark begins with one where there is nothing to read: an intent of it would be given up for ever."""
    blueprint = make(tmp_path, guarantee="at-most-once", items=0)
    planner = BatchPlanner(blueprint)
    start = planner.begin()
    assert planner.latest(start) == start
    [part] = planner.parts(start, start)
    assert part.empty
    ledger = Ledger(blueprint.folders.ledger)
    assert ledger.intent() is None
    assert skipped_entry(ledger.latest(), ledger.intent()) is None


def test_at_most_once_a_batch_is_intended_before_it_runs(tmp_path: Path) -> None:
    blueprint = make(tmp_path, guarantee="at-most-once")
    planner = BatchPlanner(blueprint)
    start = planner.begin()
    end = planner.latest(start)
    planner.parts(start, end)
    intent = Ledger(blueprint.folders.ledger).intent()
    assert intent is not None
    assert (intent.batch, intent.end) == (0, end)
