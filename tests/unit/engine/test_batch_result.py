"""Whether the result of a batch is whole: what is missing, doubled or foreign is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.connect.driver_connectors import MemorySink, MemorySource
from penstock.engine.batch_report import TaskSummary
from penstock.engine.blueprint import Blueprint, make_blueprint
from penstock.engine.driver.batch_planner import BatchPlanner
from penstock.engine.driver.batch_result import merge_result
from penstock.engine.execution.batch_stages import PARCEL, SUMMARY, Row, run_keyed_stage, run_source_stage
from penstock.engine.execution.record_flow import Program
from penstock.engine.storage.serialization import pack, unpack
from penstock.errors import IncompleteBatchError, TaskError
from penstock.graph.vertex import SIDE_STREAMS

BUCKETS = 3
PARTS = 4


def make(folder: Path, *, keyed: bool) -> Blueprint:
    job = ps.Job("whole")
    items = [(n % 5, n) for n in range(20)]
    source = job.source("in", MemorySource(items, partitions=PARTS))
    onward = source >> job.task("count", ps.Count()) if keyed else source
    onward >> job.sink("out", MemorySink())
    blueprint = make_blueprint(
        job, folder=folder, buckets=BUCKETS, sides={s: MemorySink() for s in SIDE_STREAMS}
    )
    blueprint.folders.create()
    return blueprint


def result_of(
    blueprint: Blueprint, change: Callable[[list[Row]], list[Row]] = lambda rows: rows
) -> list[Row]:
    """Run the first batch; ``change`` may alter the rows between the halves."""
    program, planner = Program(blueprint), BatchPlanner(blueprint)
    start = planner.begin()
    parts = planner.parts(start, planner.latest(start))
    assert len(parts) == PARTS
    rows = [row for part in parts for row in run_source_stage(program, part)]
    if not blueprint.plan.needs_exchange:
        return rows
    rows = change(rows)
    return [
        row
        for bucket in range(BUCKETS)
        for row in run_keyed_stage(program, [row for row in rows if row[0] == bucket])
    ]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_whole_result_is_merged(tmp_path: Path, keyed: bool) -> None:
    blueprint = make(tmp_path, keyed=keyed)
    whole = merge_result(blueprint, 0, result_of(blueprint))
    assert whole.end["batch"] == 1
    assert whole.records_out[0] == 20
    records = [r for receipt in whole.receipts["out"] for r in receipt.records]
    assert len(records) == (5 if keyed else 20)


@pytest.mark.parametrize("keyed", [False, True])
def test_no_summary_can_be_left_out_or_come_twice(tmp_path: Path, keyed: bool) -> None:
    blueprint = make(tmp_path, keyed=keyed)
    rows = result_of(blueprint)
    assert len(rows) == PARTS + (BUCKETS if keyed else 0)
    for place in range(len(rows)):
        with pytest.raises(IncompleteBatchError, match=r"(part|bucket)s have not reported|got 0 of"):
            merge_result(blueprint, 0, rows[:place] + rows[place + 1 :])
        with pytest.raises(IncompleteBatchError, match="more than once"):
            merge_result(blueprint, 0, [*rows, rows[place]])


@pytest.mark.parametrize("keyed", [False, True])
def test_no_beginning_of_a_result_passes_for_the_whole(tmp_path: Path, keyed: bool) -> None:
    blueprint = make(tmp_path, keyed=keyed)
    rows = result_of(blueprint)
    for length in range(len(rows)):
        with pytest.raises(IncompleteBatchError):
            merge_result(blueprint, 0, rows[:length])


def test_nothing_at_all_says_so(tmp_path: Path) -> None:
    with pytest.raises(IncompleteBatchError, match="batch 7 is incomplete: no part has reported"):
        merge_result(make(tmp_path, keyed=False), 7, [])


def test_a_row_that_the_shuffle_has_lost_is_missed(tmp_path: Path) -> None:
    blueprint = make(tmp_path, keyed=True)
    count = sum(1 for row in _between(blueprint) if row[1] != SUMMARY)
    for place in range(count):
        dropped = [place]

        def drop(rows: list[Row], dropped: list[int] = dropped) -> list[Row]:
            data = [row for row in rows if row[1] != SUMMARY]
            gone = data[dropped[0]]
            return [row for row in rows if row is not gone]

        with pytest.raises(IncompleteBatchError, match=r"received \d+ of \d+ rows|have not reported"):
            merge_result(blueprint, 0, result_of(blueprint, drop))


def test_a_row_that_the_shuffle_has_doubled_is_noticed(tmp_path: Path) -> None:
    blueprint = make(tmp_path, keyed=True)

    def double(rows: list[Row]) -> list[Row]:
        return [*rows, next(row for row in rows if row[1] == PARCEL)]

    with pytest.raises(IncompleteBatchError, match=r"received \d+ of \d+ rows"):
        merge_result(blueprint, 0, result_of(blueprint, double))


def test_a_summary_of_another_batch_does_not_count(tmp_path: Path) -> None:
    blueprint = make(tmp_path, keyed=False)
    rows = result_of(blueprint)
    (summary,) = unpack(rows[1][2])
    summary.batch = 5
    rows[1] = (rows[1][0], SUMMARY, pack((summary,)))
    with pytest.raises(IncompleteBatchError, match="different batches"):
        merge_result(blueprint, 0, rows)


def test_the_number_of_parts_is_checked_against_what_is_known_of_it(tmp_path: Path) -> None:
    blueprint = make(tmp_path, keyed=False)
    rows = result_of(blueprint)
    with pytest.raises(IncompleteBatchError, match="5 parts were planned"):
        merge_result(blueprint, 0, rows, planned=PARTS + 1)


def test_what_failed_is_said_even_if_the_rest_is_missing(tmp_path: Path) -> None:
    blueprint = make(tmp_path, keyed=True)
    failure = TaskError("whole", "count", "a record", "ValueError: no")
    row = (0, SUMMARY, pack((TaskSummary(0, failure=failure),)))
    with pytest.raises(TaskError, match="ValueError: no"):
        merge_result(blueprint, 0, [row])


def test_anything_but_a_summary_is_refused(tmp_path: Path) -> None:
    blueprint = make(tmp_path, keyed=False)
    rows = result_of(blueprint)
    with pytest.raises(IncompleteBatchError, match="row of kind 0"):
        merge_result(blueprint, 0, [*rows, (0, PARCEL, b"")])


@pytest.mark.parametrize("keyed", [False, True])
def test_a_batch_that_has_happened_expects_its_single_empty_part(tmp_path: Path, keyed: bool) -> None:
    blueprint = make(tmp_path, keyed=keyed)
    program, planner = Program(blueprint), BatchPlanner(blueprint)
    start = planner.begin()
    parts = planner.parts(start, start)
    assert [part.empty for part in parts] == [True]
    rows: list[Any] = list(run_source_stage(program, parts[0]))
    if keyed:
        rows = list(run_keyed_stage(program, rows))
    whole = merge_result(blueprint, 0, rows)
    assert whole.empty
    assert whole.state == {}
    with pytest.raises(IncompleteBatchError):
        merge_result(blueprint, 0, [])


def test_a_bucket_that_reports_for_an_empty_batch_is_noticed(tmp_path: Path) -> None:
    blueprint = make(tmp_path, keyed=True)
    rows = result_of(blueprint)
    (first,) = unpack(rows[0][2])
    empty = replace(first, part=replace(first.part, planned=1, number=0, empty=True), rows_sent={})
    keyed = next(row for row in rows if unpack(row[2])[0].buckets)
    with pytest.raises(IncompleteBatchError, match="unknown buckets reported"):
        merge_result(blueprint, 0, [(0, SUMMARY, pack((empty,))), keyed])


def _between(blueprint: Blueprint) -> list[Row]:
    seen: list[Row] = []

    def note(rows: list[Row]) -> list[Row]:
        seen.extend(rows)
        return rows

    result_of(blueprint, note)
    return seen
