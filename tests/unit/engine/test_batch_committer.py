"""Which batches happen: whole ones, once, in the order of the ledger."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from engine_support import LocalRun

import penstock as ps
from penstock.connect.driver_connectors import MemorySink, MemorySource
from penstock.engine.batch_report import ReportedPart, TaskSummary
from penstock.engine.blueprint import Blueprint, make_blueprint
from penstock.engine.driver.batch_committer import ATTEMPTS, PAUSES, BatchCommitter
from penstock.engine.storage import state_chain
from penstock.engine.storage.keyed_state import drop_cached_state, read_bucket
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.errors import (
    IncompleteBatchError,
    InterruptedBatchError,
    JobFailedError,
    QueryInterruptedError,
    TaskError,
)
from penstock.graph.vertex import SIDE_STREAMS


class Noted(MemorySink):
    """Notes the batches that become visible."""

    transactional = True

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def commit(self, batch: int, receipts: object) -> None:
        self.batches.append(batch)


def make(folder: Path, guarantee: str = "exactly-once") -> tuple[Blueprint, Noted]:
    job = ps.Job("committed", guarantee=guarantee)
    sink = Noted()
    job.source("in", MemorySource([1, 2, 3])) >> job.sink("out", sink)
    blueprint = make_blueprint(job, folder=folder, buckets=1, sides={s: MemorySink() for s in SIDE_STREAMS})
    blueprint.folders.create()
    return blueprint, sink


def committer(blueprint: Blueprint, last: LedgerEntry | None = None) -> BatchCommitter:
    made = BatchCommitter(blueprint)
    made.begin(last)
    return made


def result(batch: int, *, empty: bool = False, end: int | None = None) -> TaskSummary:
    receipts = {} if empty else {"out": ["a staged file"]}
    reached = {"batch": batch + 1 if end is None else end, "sources": {"in": {"0": batch + 1}}}
    return TaskSummary(batch, part=ReportedPart(0, 1, empty), end=reached, receipts=receipts)


def failing(times: int, then: Callable[[], TaskSummary]) -> Callable[[], TaskSummary]:
    """Return an attempt whose result is cut so many times before it arrives."""
    left = [times]

    def attempt() -> TaskSummary:
        if left[0]:
            left[0] -= 1
            raise IncompleteBatchError("committed", 0, "1 of 2 parts have not reported (1)")
        return then()

    return attempt


def test_an_incomplete_batch_is_run_again_with_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blueprint, sink = make(tmp_path)
    batches = committer(blueprint)
    with caplog.at_level(logging.WARNING):
        batches.run_batch(failing(1, lambda: result(0)))
    assert sink.batches == [0]
    assert batches.report.batches == 1
    [line] = [record.getMessage() for record in caplog.records]
    for word in ("incomplete batch is repeated", "committed", "1 of 2 parts have not reported"):
        assert word in line


def test_a_batch_that_stays_incomplete_is_not_committed(tmp_path: Path) -> None:
    blueprint, sink = make(tmp_path)
    batches = committer(blueprint)
    with pytest.raises(JobFailedError) as caught:
        batches.run_batch(failing(ATTEMPTS, lambda: result(0)))
    said = str(caught.value)
    assert "result of batch 0 is incomplete: 1 of 2 parts have not reported" in said
    assert f"Nothing of the batch was committed; it was run {ATTEMPTS} times" in said
    assert Ledger(blueprint.folders.ledger).latest() is None
    assert sink.batches == []
    assert batches.report.batches == 0


def test_at_most_once_no_batch_is_run_again(tmp_path: Path) -> None:
    blueprint, _ = make(tmp_path, "at-most-once")
    with pytest.raises(JobFailedError, match="at most once, a batch is not repeated"):
        committer(blueprint).run_batch(failing(1, lambda: result(0)))


def test_what_user_code_raised_is_no_reason_to_run_a_batch_again(tmp_path: Path) -> None:
    blueprint, _ = make(tmp_path)
    tried = []

    def attempt() -> TaskSummary:
        tried.append(1)
        raise TaskError("committed", "out", "a record", "ValueError: no")

    with pytest.raises(TaskError):
        committer(blueprint).run_batch(attempt)
    assert tried == [1]


def test_a_batch_that_has_happened_stands_and_is_published_again(tmp_path: Path) -> None:
    blueprint, sink = make(tmp_path)
    first = committer(blueprint)
    first.run_batch(lambda: result(0))
    entry = first.last
    # A crash later, Spark runs the batch again; the planner finds the entry and plans nothing for it.
    again = committer(blueprint, entry)
    again.run_batch(lambda: result(0, empty=True))
    assert again.last == entry
    assert entry is not None
    assert entry.receipts, "the empty result has not taken the place of the whole one"
    assert sink.batches == [0, 0]


def test_a_batch_that_is_known_to_be_out_is_not_published_again(tmp_path: Path) -> None:
    """After a clean stop the job may have got other sinks, and Spark may still run its last batch again."""
    blueprint, sink = make(tmp_path)
    first = committer(blueprint)
    first.run_batch(lambda: result(0))
    first.end()
    again = committer(blueprint, first.last)
    again.run_batch(lambda: result(0, empty=True))
    assert sink.batches == [0]


def test_an_empty_result_never_makes_an_entry(tmp_path: Path) -> None:
    blueprint, _ = make(tmp_path)
    with pytest.raises(JobFailedError, match="was committed by another run"):
        committer(blueprint).run_batch(lambda: result(0, empty=True))
    assert Ledger(blueprint.folders.ledger).latest() is None


def test_a_batch_that_another_run_has_ended_elsewhere_is_refused(tmp_path: Path) -> None:
    blueprint, _ = make(tmp_path)
    committer(blueprint).run_batch(lambda: result(0))
    with pytest.raises(JobFailedError, match="was committed by another run"):
        committer(blueprint).run_batch(
            lambda: replace(result(0), end={"batch": 1, "sources": {"in": {"0": 3}}})
        )


@pytest.mark.parametrize("batch", [0, 5])
def test_a_batch_that_reads_nothing_leaves_no_trace(tmp_path: Path, batch: int) -> None:
    blueprint, sink = make(tmp_path)
    batches = committer(blueprint)
    batches.run_batch(lambda: result(batch, empty=True, end=batch))
    assert batches.last is None
    assert sink.batches == []
    assert list(blueprint.folders.ledger.iterdir()) == []


def _interrupted(times: int, slept: list[float], made: BatchCommitter) -> None:
    left = [times]

    def attempt() -> TaskSummary:
        if left[0]:
            left[0] -= 1
            raise InterruptedBatchError("committed", 0, "a Python process of Spark did not connect to Java")
        return result(0)

    made._sleep = slept.append
    made.run_batch(attempt)


def test_an_interrupted_batch_is_run_again_after_a_growing_pause(tmp_path: Path) -> None:
    blueprint, sink = make(tmp_path)
    slept: list[float] = []
    _interrupted(ATTEMPTS - 1, slept, committer(blueprint))
    assert slept == list(PAUSES) == sorted(PAUSES)
    assert sink.batches == [0]


def test_a_batch_that_is_interrupted_each_time_ends_the_query_which_can_be_started_again(
    tmp_path: Path,
) -> None:
    blueprint, sink = make(tmp_path)
    with pytest.raises(
        QueryInterruptedError, match="job 'committed': batch 0 was interrupted: a Python process"
    ):
        _interrupted(ATTEMPTS, [], committer(blueprint))
    assert sink.batches == []


def test_at_most_once_an_interrupted_batch_is_not_run_again(tmp_path: Path) -> None:
    blueprint, sink = make(tmp_path, "at-most-once")
    slept: list[float] = []
    with pytest.raises(JobFailedError, match="a batch is not repeated") as raised:
        _interrupted(1, slept, committer(blueprint))
    assert not isinstance(raised.value, QueryInterruptedError), "nobody starts it again"
    assert (slept, sink.batches) == ([], [])


def test_state_files_that_no_chain_needs_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One key changes with every batch, one now and then, and some never again."""
    monkeypatch.setattr(state_chain, "_MIN_REACH", 8)
    monkeypatch.setattr(state_chain, "_MAX_REACH", 8)
    job = ps.Job("counting")
    job.source("in", ps.MemorySource()) >> job.task("count", ps.Count()) >> job.sink("out", ps.MemorySink())
    run = LocalRun(job, tmp_path, buckets=4)
    state = run.blueprint.folders.state
    run.step([(key, 1) for key in range(40)])
    expected = dict.fromkeys(range(40), 1)
    for batch in range(1, 61):
        keys = [0, 1] if batch % 15 == 0 else [0]
        run.step([(key, 1) for key in keys])
        expected |= {key: expected[key] + 1 for key in keys}
        assert len(list((state / "shared").iterdir())) <= 2 * (2 * 8 + 20) + 4
    assert min(int(path.name[:12]) for path in (state / "shared").iterdir()) > 60 - 2 * 8 - 20
    drop_cached_state(state)
    held: dict[int, int] = {}
    for bucket, head in run.heads.items():
        held |= read_bucket(state, bucket, head)["count"]
    assert held == expected
    assert [head.base_batch for head in run.heads.values()].count(0) == 0
    own = list(state.rglob("*.base"))
    assert 1 <= len(own) <= 3, "buckets that have not changed for long have a file each"
