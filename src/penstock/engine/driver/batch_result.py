"""Checks that the result of a batch is complete before it is committed.

A stream that breaks off can look like one that has ended, so the result of a batch is never taken at its
word. Each summary names the part or the buckets that it speaks for, and counts the rows that went through the
shuffle. Together they must name every part of the plan and every bucket exactly once, and each bucket must
have got exactly the rows that were sent to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from penstock.engine.batch_report import TaskSummary
from penstock.engine.blueprint import Blueprint
from penstock.engine.execution.batch_stages import SUMMARY, Row
from penstock.engine.storage.serialization import unpack
from penstock.errors import IncompleteBatchError

_SHOWN = 5
"""How many of the missing parts or buckets an error names."""


def merge_result(
    blueprint: Blueprint, batch: int, rows: Iterable[Row], *, planned: int | None = None
) -> TaskSummary:
    """Return what all tasks say together of the batch that is due.

    ``planned`` is the number of parts before the shuffle, where that is known from elsewhere than the result
    itself. Raises the failure of a task if one has failed, or IncompleteBatchError.
    """
    summaries = [_read(blueprint, batch, row) for row in rows]
    for summary in summaries:
        if summary.failure is not None:
            raise summary.failure
    problems = list(_gaps(blueprint, summaries, planned))
    if problems:
        raise IncompleteBatchError(blueprint.job, batch, "; ".join(problems))
    whole = TaskSummary(summaries[0].batch if summaries else batch)
    for summary in summaries:
        whole.absorb(summary)
    return whole


def _read(blueprint: Blueprint, batch: int, row: Row) -> TaskSummary:
    _, kind, data = row
    if kind != SUMMARY:
        raise IncompleteBatchError(blueprint.job, batch, f"a row of kind {kind} came instead of a summary")
    (summary,) = unpack(bytes(data))
    assert isinstance(summary, TaskSummary)
    return summary


def _gaps(blueprint: Blueprint, summaries: Sequence[TaskSummary], planned: int | None) -> Iterator[str]:
    parts = [summary.part for summary in summaries if summary.part is not None]
    if planned is None:
        if not parts:
            yield "no part of it has reported"
            return
        planned = parts[0].planned
    batches = sorted({summary.batch for summary in summaries})
    if len(batches) > 1:
        yield f"tasks of different batches have reported ({_some(batches)})"
    if any(part.planned != planned for part in parts):
        counts = sorted({part.planned for part in parts})
        yield f"{planned} parts were planned, and tasks say {', '.join(map(str, counts))}"
    yield from _unmatched("part", range(planned), (part.number for part in parts))
    keyed = blueprint.plan.needs_exchange and not any(part.empty for part in parts)
    named = (bucket for summary in summaries for bucket in summary.buckets)
    yield from _unmatched("bucket", range(blueprint.buckets if keyed else 0), named)
    if blueprint.plan.needs_exchange:
        yield from _lost_rows(summaries)


def _unmatched(what: str, expected: Iterable[int], named: Iterable[int]) -> Iterator[str]:
    """Say what was not named, named more than once, or named without being expected."""
    wanted, found = set(expected), Counter(named)
    missing = sorted(wanted - set(found))
    if missing:
        yield f"{len(missing)} of {len(wanted)} {what}s have not reported ({_some(missing)})"
    repeated = sorted(number for number, times in found.items() if times > 1)
    if repeated:
        yield f"{what}s reported more than once ({_some(repeated)})"
    unknown = sorted(set(found) - wanted)
    if unknown:
        yield f"{what}s reported that it does not have ({_some(unknown)})"


def _lost_rows(summaries: Sequence[TaskSummary]) -> Iterator[str]:
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    for summary in summaries:
        sent.update(summary.rows_sent)
        received.update(summary.rows_received)
    different = sorted(bucket for bucket in {*sent, *received} if sent[bucket] != received[bucket])
    if different:
        bucket = different[0]
        yield (
            f"bucket {bucket} got {received[bucket]} of {sent[bucket]} rows that were sent to it"
            + (f", and {len(different) - 1} others differ likewise" if len(different) > 1 else "")
        )


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    return shown if len(numbers) <= _SHOWN else f"{shown}, …"
