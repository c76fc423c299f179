"""The two stages of a batch in Spark tasks.

The direct stage reads a part of the sources and runs all vertices up to a keyed edge or a sink. The keyed
stage runs the vertices after keyed edges; records that it sends over a further keyed edge go into a feedback
file, whose parcels the next batch's direct stage forwards without unpacking them. Rows between the stages are
``(slot, kind, data)``: a slot is one task of the keyed stage, and the slot table of the batch says which
buckets it processes.

The result of a batch does not depend on the speed of its tasks: every parcel has a position, and a bucket
opens its parcels in that order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, repeat
from math import inf
from struct import Struct
from typing import Any
from uuid import uuid4

from penstock.columns import Columns
from penstock.engine.batch_context import TaskScope, ctx
from penstock.engine.batch_report import ReportedPart, TaskSummary
from penstock.engine.blueprint import Blueprint
from penstock.engine.execution.keyed_bucket import BatchTime, Bucket
from penstock.engine.execution.native_outbox import SUFFIX
from penstock.engine.execution.parcels import Inbox
from penstock.engine.execution.record_flow import Flow, Program
from penstock.engine.execution.vertex_step import VertexFailureError
from penstock.engine.job_sources import read_source
from penstock.engine.record_digest import add_digests
from penstock.engine.slot_table import SlotTable
from penstock.engine.storage.keyed_state import TaskState, UnkeepableStateError
from penstock.engine.storage.serialization import pack, read_sealed, unpack, write_sealed
from penstock.engine.storage.state_chain import StateHead
from penstock.engine.windows.watermarks import BatchClock, Highs, TimeProgress, vertex_watermarks
from penstock.engine.windows.window_assigner import LaneWindows
from penstock.errors import IncompleteBatchError, PenstockError, TaskError, cause_of, trace_of
from penstock.record import Record

PARCEL, HEADS, SUMMARY, HIGHS, NATIVE = 0, 1, 2, 3, 4
Row = tuple[int, int, Any]
"""A slot, a kind and bytes. A row of kind NATIVE has the number of an input of a vertex in Spark instead of a
slot, and an Arrow array."""

_Produced = tuple[int, int, Any]
"""A row that is not addressed to a slot yet: a parcel with its bucket, high marks for all slots (their number
means nothing), or a row of kind NATIVE."""

_PARCEL_HEADER = Struct(">III")
"""The header of each parcel: its bucket, the part of the batch that sent it, and its number among the part's
parcels."""
_BUCKET = Struct(">I")
_NATIVE_PART = 0xFFFFFFFF
"""The part number of parcels from vertices in Spark, after all other parts. These parcels share one position
and are ordered by content, because the rows of a frame have no order and its tasks have no stable numbers."""


@dataclass(frozen=True)
class BatchPart:
    """The work of one Spark task of the direct stage."""

    batch: int
    number: int
    end: dict[str, Any]
    planned: int = 1
    """How many parts the batch has."""
    returned: int = 0
    """How many parts, all before the others, return feedback. Their number depends on the slot table."""
    empty: bool = False
    """Whether there is nothing to do: the batch is already in the ledger, or it reads nothing."""
    source: str | None = None
    split: Any = None
    feedback: str | None = None
    heads: dict[int, StateHead] | None = field(default=None)
    """Given to the first part only, which sends each slot the heads of its buckets."""
    clock: BatchClock = field(default_factory=lambda: BatchClock(0.0, False, TimeProgress()))
    lane: str = ""
    """The lane (ordered stream) that the part belongs to."""
    slots: list[int] | None = None
    """The slot of each bucket; None if that is the default one."""


def run_source_stage(program: Program, part: BatchPart) -> Iterator[Row]:
    """Run a part of the direct stage."""
    blueprint = program.blueprint
    gate = LaneWindows(blueprint, part.clock, part.lane) if part.source is not None else None
    number = part.number - part.returned
    scope = TaskScope(blueprint.job, program.names, part.batch, part.clock.now, "part", number)
    flow = Flow(program, scope, uuid4().hex, gate)
    flow.begin(f"p{number}")
    table = blueprint.slot_table(part.slots)
    sent: dict[int, int] = {}
    try:
        if part.heads is not None and blueprint.plan.needs_exchange:
            for slot, buckets in table.assignments():
                sent[slot] = 1
                heads = {bucket: part.heads.get(bucket) for bucket in buckets}
                yield slot, HEADS, pack((part.batch, heads, part.clock))
        with ctx.within(scope):
            rows = _process_part(program, flow, part)
            yield from _to_slots(table, rows, part.number, count(), sent)
        summary = flow.summary
    except Exception as error:
        summary = failed(program, part.batch, error)
    summary.part = ReportedPart(part.number, part.planned, part.empty)
    summary.rows_sent = sent
    summary.end = part.end
    summary.clock = part.clock if part.heads is not None else None
    yield part.number % blueprint.slots, SUMMARY, _seal(program, summary)


@dataclass(frozen=True)
class ResumedPart:
    """The work of the Spark tasks that continue with the results of a vertex in Spark."""

    batch: int
    vertex: int
    clock: BatchClock
    slots: list[int] | None = None
    """The slot of each bucket; None if that is the default one."""


def run_resumed_stage(
    program: Program, part: ResumedPart, chunks: Iterable[Columns], number: int = 0
) -> Iterator[Row]:
    """Continue with the results of a vertex in Spark, before the shuffle, in the task with a number."""
    blueprint, vertex = program.blueprint, part.vertex
    gate = LaneWindows(blueprint, part.clock, blueprint.vertices[vertex].name, ordered=False)
    scope = TaskScope(blueprint.job, program.names, part.batch, part.clock.now, f"behind {vertex}", number)
    flow = Flow(program, scope, uuid4().hex, gate)
    table = blueprint.slot_table(part.slots)
    sent: dict[int, int] = {}
    try:
        with ctx.within(scope):
            rows = _resume(flow, vertex, chunks)
            yield from _to_slots(table, rows, _NATIVE_PART, repeat(0), sent)
        summary = flow.summary
    except Exception as error:
        summary = failed(program, part.batch, error)
    summary.rows_sent = sent
    yield 0, SUMMARY, _seal(program, summary)


def _process_part(program: Program, flow: Flow, part: BatchPart) -> Iterator[_Produced]:
    if part.feedback is not None:
        yield from _read_feedback(program, flow, part.feedback)
    if part.source is not None:
        vertex = flow.scope.vertex = program.blueprint.index_of(part.source)
        for chunk in read_source(program.blueprint, vertex, part.split):
            flow.read(vertex, chunk)
            yield from _early_rows(flow)
    yield from _remaining_rows(flow)


def _resume(flow: Flow, vertex: int, chunks: Iterable[Columns]) -> Iterator[_Produced]:
    for columns in chunks:
        flow.resume(vertex, columns)
        yield from _early_rows(flow)
    yield from _remaining_rows(flow)


def _to_slots(
    table: SlotTable, rows: Iterable[_Produced], part: int, numbers: Iterator[int], sent: dict[int, int]
) -> Iterator[Row]:
    """Yield rows with their slots, parcels with their positions, and count the rows for each slot."""
    slot_of = table.slot_of
    for target, kind, data in rows:
        if kind == PARCEL:
            slot = slot_of[target]
            sent[slot] = sent.get(slot, 0) + 1
            yield slot, PARCEL, _PARCEL_HEADER.pack(target, part, next(numbers)) + data
        elif kind == HIGHS:
            for slot in table.filled:
                sent[slot] = sent.get(slot, 0) + 1
                yield slot, HIGHS, data
        else:
            yield target, kind, data


def _early_rows(flow: Flow) -> Iterator[_Produced]:
    """Yield rows that need not wait for the end of the task."""
    if flow.outbox.full:
        yield from _parcels(flow)
    yield from _native_rows(flow)


def _remaining_rows(flow: Flow) -> Iterator[_Produced]:
    """Yield the remaining rows of a task before the shuffle, when it has read everything."""
    summary = flow.finish()
    while flow.unsent:
        yield from _parcels(flow)
        yield from _native_rows(flow)
        summary = flow.finish()
    if summary.highs:
        yield 0, HIGHS, pack((summary.highs,))


def run_keyed_stage(program: Program, rows: Iterable[Row]) -> Iterator[Row]:
    """Run the keyed stage for the buckets of one slot, in one Spark task."""
    blueprint = program.blueprint
    heads: dict[int, StateHead | None] = {}
    parcels: dict[int, list[bytes]] = {}
    highs: Highs = {}
    received: dict[int, int] = {}
    batch = -1
    clock: BatchClock | None = None
    try:
        for slot, kind, data in rows:
            if kind != SUMMARY:
                received[slot] = received.get(slot, 0) + 1
            if kind == PARCEL:
                (bucket,) = _BUCKET.unpack_from(data)
                parcels.setdefault(bucket, []).append(data)
            elif kind == HEADS:
                batch, heads, clock = unpack(data)
            elif kind == HIGHS:
                _merge_highs(highs, unpack(data)[0])
            else:
                yield slot, kind, data
        if clock is None:
            return
        foreign = sorted(set(parcels) - set(heads))
        if foreign:
            reason = f"slot {slot} received records of bucket {foreign[0]}, which another slot processes"
            raise IncompleteBatchError(blueprint.job, batch, reason)
        scope = TaskScope(blueprint.job, program.names, batch, clock.now, "bucket")
        with ctx.within(scope):
            summary = _run_buckets(program, scope, _ReceivedRows(heads, parcels, highs, clock))
    except Exception as error:
        summary = failed(program, batch, error)
    summary.buckets = tuple(sorted(heads))
    summary.rows_received = received
    yield 0, SUMMARY, _seal(program, summary)


@dataclass
class _ReceivedRows:
    """The rows that one Spark task after the shuffle has received."""

    heads: dict[int, StateHead | None]
    parcels: dict[int, list[bytes]]
    highs: Highs
    clock: BatchClock


def _run_buckets(program: Program, scope: TaskScope, arrived: _ReceivedRows) -> TaskSummary:
    blueprint, batch, clock = program.blueprint, scope.batch, arrived.clock
    marks = vertex_watermarks(blueprint, clock, arrived.highs)
    task = uuid4().hex
    flow = Flow(program, scope, task, by_origin=True)
    flow.summary.marks = marks
    work = Bucket(flow, blueprint, batch, BatchTime(clock.now, clock.before.marks, marks))
    folders = blueprint.folders
    with TaskState(
        folders.state, arrived.heads, batch, task, lasting=blueprint.lasting, synced=folders.synced
    ) as states:
        for bucket in sorted(arrived.heads):
            pending = clock.before.pending.get(str(bucket), {})
            if bucket not in arrived.parcels and not _has_closed_window(blueprint, pending, marks):
                flow.summary.pending[bucket] = pending
                continue
            scope.move_to(bucket)
            flow.begin(f"b{bucket}")
            inbox = Inbox(blueprint, flow.error_handler)
            parcels = sorted(arrived.parcels.pop(bucket, ()))
            inbox.take(memoryview(parcel)[_PARCEL_HEADER.size :] for parcel in parcels)
            state = states.bucket(bucket)
            flow.summary.pending[bucket] = work.run(inbox, state)
            with _unkeepable_state_explained(blueprint):
                states.save(state)
            if blueprint.replica_spec is not None:
                add_digests(flow.summary.state_digests, state.digests())
        flow.finish()
        _write_feedback(program, flow, f"{batch:012d}-{task}")
        for bucket in states.overdue():
            with _unkeepable_state_explained(blueprint):
                states.rewrite(bucket)
        flow.summary.state = states.finish()
    return flow.finish()


@contextmanager
def _unkeepable_state_explained(blueprint: Blueprint) -> Iterator[None]:
    """Raise the error of a key or state that cannot be stored as one of its vertex."""
    try:
        yield
    except UnkeepableStateError as error:
        cause = error.__cause__ or error
        raise VertexFailureError(blueprint.index_of(error.vertex), None, cause) from error


def _has_closed_window(blueprint: Blueprint, pending: dict[str, float], marks: dict[int, float]) -> bool:
    """Return whether a bucket has a window that the watermarks have closed."""
    return any(pending.get(blueprint.vertices[v].name, inf) <= mark for v, mark in marks.items())


def _merge_highs(highs: Highs, others: Highs) -> None:
    for vertex, lanes in others.items():
        known = highs.setdefault(vertex, {})
        for lane, high in lanes.items():
            known[lane] = max(high, known.get(lane, high))


def failed(program: Program, batch: int, error: Exception) -> TaskSummary:
    """Return the summary of a failed task; unknown errors are raised."""
    blueprint = program.blueprint
    if isinstance(error, VertexFailureError):
        return TaskSummary(batch, failure=error.explain(blueprint.job, blueprint.vertices[error.vertex].name))
    if isinstance(error, PenstockError):
        return TaskSummary(batch, failure=error)
    raise error


def failure_row(batch: int, error: PenstockError) -> Row:
    """Return the row that reports a task that could not start."""
    return 0, SUMMARY, pack((TaskSummary(batch, failure=error),))


def _seal(program: Program, summary: TaskSummary) -> bytes:
    """Pack a summary; a receipt that cannot be pickled is reported as an error of its records."""
    try:
        return pack((summary,))
    except Exception:
        for sink, receipts in summary.receipts.items():
            try:
                pack((receipts,))
            except Exception as cause:
                failure = TaskError(
                    program.blueprint.job, sink, "its input", cause_of(cause), trace_of(cause)
                )
                return pack((TaskSummary(summary.batch, failure=failure),))
        raise


def _parcels(flow: Flow) -> Iterator[_Produced]:
    for bucket, parcel in flow.parcels():
        yield bucket, PARCEL, parcel


def _native_rows(flow: Flow) -> Iterator[_Produced]:
    for slot, structs in flow.natives.drain():
        yield slot, NATIVE, structs


def _write_feedback(program: Program, flow: Flow, name: str) -> None:
    folders = program.blueprint.folders
    parcels: list[tuple[int, bytes]] = []
    kept: list[tuple[str, str, list[Record]]] = []
    while flow.unsent:
        parcels += flow.parcels()
        kept += flow.natives.keep()
        flow.finish()
    if parcels:
        write_sealed(folders.feedback / name, pack((parcels,)), synced=folders.synced)
        flow.summary.feedback.append(name)
    if kept:
        write_sealed(folders.feedback / f"{name}{SUFFIX}", pack((kept,)), synced=folders.synced)
        flow.summary.feedback.append(f"{name}{SUFFIX}")


def _read_feedback(program: Program, flow: Flow, name: str) -> Iterator[_Produced]:
    (parcels,) = unpack(read_sealed(program.blueprint.folders.feedback / name))
    if name.endswith(SUFFIX):
        flow.natives.take(parcels)
        return
    for bucket, parcel in parcels:
        yield bucket, PARCEL, parcel
