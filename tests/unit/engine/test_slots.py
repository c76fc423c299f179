"""Buckets and slots: which task runs a bucket, from one batch to the next and from one run to the next."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from engine_support import LocalRun, records

import penstock as ps
from penstock.engine.blueprint import make_blueprint
from penstock.engine.driver.batch_result import merge_result
from penstock.engine.driver.bucket_migration import change_buckets
from penstock.engine.driver.query_launch import prepare
from penstock.engine.execution.batch_stages import SUMMARY, BatchPart, run_keyed_stage, run_source_stage
from penstock.engine.slot_table import SlotTable
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.errors import IncompleteBatchError
from penstock.testing.local_engine import LocalRuntime

BUCKETS, SLOTS = 16, 3


def _job() -> ps.Job:
    job = ps.Job("slots")
    job.source("in", ps.MemorySource()) >> job.task("count", ps.Count()) >> job.sink("out", ps.MemorySink())
    return job


class _Watched(random.Random):
    """Notes the slots of the rows between the stages of a batch, and leaves their order as it is."""

    def shuffle(self, x: Any) -> None:
        self.slots = {slot for slot, kind, _ in x if kind != SUMMARY}


def _run(folder: Path, slots: int = SLOTS) -> LocalRun:
    run = LocalRun(_job(), folder, buckets=BUCKETS, slots=slots)
    run.shuffler = _Watched()
    return run


def _tasks(run: LocalRun) -> set[int]:
    """Return the slots that received rows in the last batch."""
    assert isinstance(run.shuffler, _Watched)
    return run.shuffler.slots


def test_a_batch_is_run_by_the_slots_of_its_table(tmp_path: Path) -> None:
    run = _run(tmp_path)
    items = [(n, 1) for n in range(40)]
    run.step(items)
    assert _tasks(run) == {0, 1, 2}
    run.assign([1] * BUCKETS)
    run.step(items)
    assert _tasks(run) == {1}
    run.assign([0, 2] * (BUCKETS // 2))
    run.step(items)
    assert _tasks(run) == {0, 2}
    assert run.out("out") == records(*((n, count) for n in range(40) for count in (1, 2, 3)))


@pytest.mark.parametrize("content", ["", "[1, 2", "{}", "[0]", f"{[7] * BUCKETS}", f"{['1'] * BUCKETS}"])
def test_a_table_that_does_not_fit_is_not_used(tmp_path: Path, content: str) -> None:
    run = _run(tmp_path)
    run.blueprint.folders.slots.write_text(content)
    run.step([(n, 1) for n in range(40)])
    assert _tasks(run) == {0, 1, 2}
    assert run.last is not None
    assert "slots" not in run.last.end


def test_only_a_table_that_is_not_the_default_is_part_of_the_plan(tmp_path: Path) -> None:
    run = _run(tmp_path)
    run.assign(SlotTable.even(BUCKETS, SLOTS).slot_of)
    run.step([("a", 1)])
    assert run.last is not None
    assert "slots" not in run.last.end
    table = [2] * BUCKETS
    run.assign(table)
    run.step([("a", 1)])
    assert run.last.end["slots"] == table


def test_a_run_with_another_number_of_slots_continues(tmp_path: Path) -> None:
    items = [(n, 1) for n in range(40)]
    for count, slots in enumerate((1, 5, 2, 16), start=1):
        run = _run(tmp_path, slots)
        run.step(items)
        assert len(_tasks(run)) == slots
        assert run.out("out") == records(*((n, count) for n in range(40)))


def test_records_of_a_bucket_in_the_wrong_slot_make_the_batch_incomplete(tmp_path: Path) -> None:
    """As if two tasks before the shuffle had planned with different tables."""
    run = _run(tmp_path)
    lines = [ps.Record(n, 1) for n in range(40)]
    whole = BatchPart(0, 0, {"batch": 1}, 2, source="in", split=("0", lines), lane="in:0", heads={})
    other = BatchPart(
        0, 1, {"batch": 1}, 2, source="in", split=("1", lines), lane="in:1", slots=[0] * BUCKETS
    )
    rows = [row for part in (whole, other) for row in run_source_stage(run.program, part)]
    done = [
        row
        for slot in range(SLOTS)
        for row in run_keyed_stage(run.program, [row for row in rows if row[0] == slot])
    ]
    with pytest.raises(IncompleteBatchError, match="slot 0 received records of bucket 1, which another slot"):
        merge_result(run.blueprint, 0, done)


class Prefixes(ps.StatefulTask):
    """Remembers all values in their order."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        seen = (*(state or ()), *values)
        return seen, [(key, seen)]


def test_the_records_of_a_key_stay_in_order_while_buckets_move(tmp_path: Path) -> None:
    job = ps.Job("order")
    source = job.source("in", ps.MemorySource())
    source >> job.task("all", Prefixes()) >> job.sink("out", ps.MemorySink())
    run = LocalRun(job, tmp_path, buckets=BUCKETS, slots=SLOTS)
    dice = random.Random(7)
    numbers = range(300)
    for first in range(0, 300, 20):
        run.assign([dice.randrange(SLOTS) for _ in range(BUCKETS)])
        run.step([(n % 11, n) for n in numbers[first : first + 20]])
    newest = {record.key: record.value for record in run.sinks["out"].records}
    assert newest == {key: tuple(n for n in numbers if n % 11 == key) for key in range(11)}


@pytest.mark.parametrize(
    ("settings", "known", "expected"),
    [
        ({}, None, (128, 3)),
        ({"parallelism": 5}, None, (128, 5)),
        ({"buckets": 64}, None, (64, 3)),
        ({"buckets": 2}, None, (2, 2)),
        ({}, 2, (2, 2)),
        ({"parallelism": 4}, 4, (4, 4)),
        ({"buckets": 128}, 4, (128, 3)),
        ({"parallelism": 200}, None, (200, 200)),
    ],
)
def test_buckets_are_kept_and_slots_follow_the_cores(
    tmp_path: Path, settings: dict[str, int], known: int | None, expected: tuple[int, int]
) -> None:
    job = _job()
    for name, value in settings.items():
        setattr(job, name, value)
    drawn = make_blueprint(job, folder=tmp_path, buckets=1, sides={})
    last = LedgerEntry(0, {}, buckets=known) if known else None
    blueprint = prepare(LocalRuntime(parallelism=3), job, drawn, last).blueprint
    assert (blueprint.buckets, blueprint.slots) == expected


def test_the_default_number_of_instances_is_that_of_the_first_run(tmp_path: Path) -> None:
    """Replicas may have different numbers of cores for a while, and must give the same results."""
    job = ps.Job("told")
    told = job.task("told", lambda r: (ps.ctx.instance, r.value))
    job.connect(job.source("in", ps.MemorySource()), told, by=ps.BROADCAST)
    told >> job.sink("out", ps.MemorySink())
    drawn = make_blueprint(job, folder=tmp_path, buckets=1, sides={})

    def instances(cores: int, last: LedgerEntry | None) -> int:
        blueprint = prepare(LocalRuntime(cores), job, drawn, last).blueprint
        return blueprint.instances[job.vertex("told").index]

    assert instances(3, None) == 3
    assert instances(5, LedgerEntry(0, {}, buckets=128, default_instances=3)) == 3
    assert instances(5, LedgerEntry(0, {}, buckets=2)) == 2, "as in version 0.1.0"
    assert instances(5, LedgerEntry(0, {}, buckets=0)) == 5, "a replica that has skipped to a batch"
    before = LedgerEntry(0, {}, buckets=2)
    folders = drawn.folders
    folders.create()
    Ledger(folders.ledger).commit(before)
    assert change_buckets(folders, before, 128).default_instances == 2
