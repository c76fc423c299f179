"""Checks that the result of a batch is complete before it is committed.

A truncated stream can look like a complete one, so every result is checked. Each summary names the part or
the buckets that its task has run, and counts the rows that it has sent or received through the shuffle.
Together the summaries must name every planned part and every bucket exactly once, and each slot must have
received exactly the rows that were sent to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from penstock.engine.batch_report import TaskSummary
from penstock.engine.blueprint import Blueprint
from penstock.engine.execution.batch_stages import SUMMARY, Row
from penstock.engine.storage.serialization import unpack
from penstock.errors import IncompleteBatchError

_MAX_SHOWN = 5
"""The maximum number of parts or buckets that an error names."""


def merge_result(
    blueprint: Blueprint, batch: int, rows: Iterable[Row], *, planned: int | None = None
) -> TaskSummary:
    """Merge the summaries of all tasks of a batch and return the result.

    ``planned`` is the number of parts before the shuffle, if known independently of the result. Raises the
    failure of a task if one has failed, and IncompleteBatchError if something is missing.
    """
    summaries = [_read(blueprint, batch, row) for row in rows]
    for summary in summaries:
        if summary.failure is not None:
            raise summary.failure
    problems = list(_problems(blueprint, summaries, planned))
    if problems:
        raise IncompleteBatchError(blueprint.job, batch, "; ".join(problems))
    whole = TaskSummary(summaries[0].batch if summaries else batch)
    for summary in summaries:
        whole.absorb(summary)
    return whole


def _read(blueprint: Blueprint, batch: int, row: Row) -> TaskSummary:
    _, kind, data = row
    if kind != SUMMARY:
        raise IncompleteBatchError(blueprint.job, batch, f"got a row of kind {kind} instead of a summary")
    (summary,) = unpack(bytes(data))
    assert isinstance(summary, TaskSummary)
    return summary


def _problems(blueprint: Blueprint, summaries: Sequence[TaskSummary], planned: int | None) -> Iterator[str]:
    parts = [summary.part for summary in summaries if summary.part is not None]
    if planned is None:
        if not parts:
            yield "no part has reported"
            return
        planned = parts[0].planned
    batches = sorted({summary.batch for summary in summaries})
    if len(batches) > 1:
        yield f"tasks of different batches have reported ({_abbreviated(batches)})"
    if any(part.planned != planned for part in parts):
        counts = sorted({part.planned for part in parts})
        yield f"{planned} parts were planned, but tasks report {', '.join(map(str, counts))}"
    yield from _unmatched("part", range(planned), (part.number for part in parts))
    keyed = blueprint.plan.needs_exchange and not any(part.empty for part in parts)
    named = (bucket for summary in summaries for bucket in summary.buckets)
    yield from _unmatched("bucket", range(blueprint.buckets if keyed else 0), named)
    if blueprint.plan.needs_exchange:
        yield from _lost_rows(summaries)


def _unmatched(what: str, expected: Iterable[int], named: Iterable[int]) -> Iterator[str]:
    """Yield problems: numbers that are missing, repeated or unexpected."""
    wanted, found = set(expected), Counter(named)
    missing = sorted(wanted - set(found))
    if missing:
        yield f"{len(missing)} of {len(wanted)} {what}s have not reported ({_abbreviated(missing)})"
    repeated = sorted(number for number, times in found.items() if times > 1)
    if repeated:
        yield f"{what}s reported more than once ({_abbreviated(repeated)})"
    unknown = sorted(set(found) - wanted)
    if unknown:
        yield f"unknown {what}s reported ({_abbreviated(unknown)})"


def _lost_rows(summaries: Sequence[TaskSummary]) -> Iterator[str]:
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    for summary in summaries:
        sent.update(summary.rows_sent)
        received.update(summary.rows_received)
    different = sorted(slot for slot in {*sent, *received} if sent[slot] != received[slot])
    if different:
        slot = different[0]
        yield (
            f"slot {slot} received {received[slot]} of {sent[slot]} rows that were sent to it"
            + (f"; the row counts of {len(different) - 1} more slots differ" if len(different) > 1 else "")
        )


def _abbreviated(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MAX_SHOWN]))
    return shown if len(numbers) <= _MAX_SHOWN else f"{shown}, …"
