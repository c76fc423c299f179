"""The flow of records through the vertices of a job, inside one Spark task.

A worklist holds lists of records together with their target vertex and port and with the loop counters that
all records of the list share. Following an edge therefore costs nothing per record, and a loop is only an
edge that puts a list back onto the worklist. Records with a schema stay in columns as long as the vertices
they reach can process columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.columns import Columns
from penstock.engine.batch_context import TaskScope
from penstock.engine.batch_report import TaskSummary
from penstock.engine.blueprint import Blueprint
from penstock.engine.execution.native_outbox import NativeOutbox, runs_in_spark
from penstock.engine.execution.parcels import Outbox
from penstock.engine.execution.partial_results import Address, Counters
from penstock.engine.execution.vertex_step import (
    ArrowStep,
    Emitted,
    ErrorHandler,
    Step,
    VertexFailureError,
    arrow_step,
    compile_step,
    message_of,
    retry,
)
from penstock.engine.job_sinks import SinkWriters
from penstock.engine.side_streams import SIDES, Discarded, Failed, Late, SideEntry
from penstock.engine.windows.window_assigner import LaneWindows
from penstock.errors import ConnectorError, TaskError, UnstorableValueError, shorten
from penstock.graph.connector_api import Reject, Rejected
from penstock.graph.edge import Distribution
from penstock.graph.tasks import ArrowTask
from penstock.graph.vertex import DISCARDED, ERRORS, LATE
from penstock.graph.windows import TimeWindow
from penstock.plan.exchanges import WINDOW_PORT
from penstock.plan.physical_plan import Channel, Hop, LoopClosure
from penstock.record import Record
from penstock.schema.record_schema import Schema
from penstock.vertex_calls import vertex_call

Records = list[Record] | Columns

_new = tuple.__new__


class Program:
    """A blueprint with its compiled vertices; created once in each worker process."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.steps: list[Step | None] = []
        self._instances = blueprint.instances
        self._own_steps: dict[tuple[int, int], Step] = {}
        for index, vertex in enumerate(blueprint.vertices):
            try:
                with vertex_call(vertex.name):
                    self.steps.append(compile_step(vertex) if index not in self._instances else None)
            except Exception as error:
                failure = VertexFailureError(index, None, error)
                raise failure.explain(blueprint.job, vertex.name) from error
        self.arrow_steps: dict[int, ArrowStep] = {
            index: arrow_step(vertex.operator)
            for index, vertex in enumerate(blueprint.vertices)
            if isinstance(vertex.operator, ArrowTask)
        }
        self.names = tuple(vertex.name for vertex in blueprint.vertices)
        self.no_counters: Counters = (0,) * len(blueprint.plan.loops)
        self.gated = {timed.vertex for timed in blueprint.plan.timed}
        """Vertices after the shuffle whose records must first be assigned to windows."""

    def step(self, vertex: int, instance: int) -> Step:
        """Return the compiled step of a vertex; each instance has its own object."""
        known = self.steps[vertex]
        if known is None:
            place = (vertex, instance)
            known = self._own_steps.get(place)
            if known is None:
                spec = self.blueprint.vertices[vertex]
                made = compile_step(replace(spec, operator=deepcopy(spec.operator)))
                assert made is not None, f"{spec.name} does not process single records"
                known = self._own_steps[place] = made
        return known


class Flow:
    """The execution of a program in one Spark task of one batch."""

    def __init__(
        self,
        program: Program,
        scope: TaskScope,
        task: str,
        gate: LaneWindows | None = None,
        *,
        by_origin: bool = False,
    ) -> None:
        batch = scope.batch
        self.scope = scope
        self._program = program
        self._job = program.blueprint.job
        self._plan = program.blueprint.plan
        self._vertices = program.blueprint.vertices
        self._instances = program.blueprint.instances
        self._gate = gate
        self.no_counters = program.no_counters
        self._queue: deque[tuple[int, str, Counters, Records]] = deque()
        self._writers = SinkWriters(program.blueprint, batch, task)
        lane = gate.lane if gate is not None else ""
        self.outbox = Outbox(program.blueprint, self.error_handler, lane, by_origin=by_origin)
        self.natives = NativeOutbox(program.blueprint, self._misfits_in_spark)
        self.summary = TaskSummary(batch)

    def begin(self, origin: str) -> None:
        """Set the origin of the following records within the batch; their ids in sinks derive from it."""
        self._writers.begin(origin)
        self.outbox.begin(self.scope.instance)

    def read(self, vertex: int, chunk: Records | Rejected) -> None:
        """Process records of a source in all vertices that they reach."""
        if isinstance(chunk, Rejected):
            self._handle_unreadable(vertex, chunk)
        elif vertex in self._plan.multipath_sources:
            for record in listed(chunk):
                self.leave(vertex, self.no_counters, [("out", [record])])
        elif self._vertices[vertex].window is None:
            self._follow(vertex, self.no_counters, [("out", chunk)])
        else:
            schema = self._vertices[vertex].schema
            records = listed(
                chunk if schema is None else self._fitting(vertex, self.no_counters, schema, chunk)
            )
            self._count(self.summary.records_out, vertex, len(records))
            self._gather(vertex, records)
        self._run()

    def enter(self, vertex: int, port: str, counters: Counters, records: list[Record]) -> None:
        """Process records at a vertex and in all vertices that they reach."""
        sent_to = self.scope.instance
        if vertex in self._instances:
            # Records in transit when the job was changed may be addressed to a removed instance.
            self.scope.instance %= self._instances[vertex]
        self._queue.append((vertex, port, counters, records))
        self._run()
        self.scope.instance = sent_to

    def leave(self, vertex: int, counters: Counters, emitted: Emitted) -> None:
        """Process records emitted by a vertex in all vertices that they reach."""
        self._follow(vertex, counters, emitted)
        self._run()

    def resume(self, vertex: int, given: Columns) -> None:
        """Continue in Python with the results of a vertex in Spark."""
        schema = self._vertices[vertex].schema
        columns = given if schema is None else self._fitting(vertex, self.no_counters, schema, given)
        self._count(self.summary.records_out, vertex, len(columns))
        for hop in self._plan.hops.get((vertex, "out"), ()):
            if columns and not runs_in_spark(self._program.blueprint, hop):
                self._deliver(hop, self.no_counters, columns)
        self._run()

    def finish(self) -> TaskSummary:
        """Finish the sinks. They may reject records, which flow on, and so may records that cannot be packed:
        repeat this until nothing is :attr:`unsent`.
        """
        self._run()
        while (sealed := self._writers.finish_next()) is not None:
            sink, receipt = sealed
            if receipt is not None:
                self.summary.receipts.setdefault(sink, []).append(receipt)
            self._run()
        if self._gate is not None:
            self.summary.highs = self._gate.highs
        self.summary.digests = self._writers.digests
        return self.summary

    @property
    def unsent(self) -> bool:
        """Return whether there are records to send to tasks after the shuffle or to vertices in Spark."""
        return not self.outbox.empty or not self.natives.empty

    def parcels(self) -> Iterator[tuple[int, bytes]]:
        """Yield the parcels to send with their buckets, and remove them."""
        yield from self.outbox.drain(self._settle)

    def _settle(self, origin: int | None) -> None:
        """Process the records that have left side ports while the records of an origin were packed."""
        if origin is not None:
            self.scope.move_to(origin)
        self._run()

    def error_handler(self, vertex: int, counters: Counters) -> ErrorHandler:
        """Return the error handler of a vertex, which applies its error policy."""
        return partial(self._recover, vertex, counters)

    def reject(
        self, vertex: int, counters: Counters, record: Record, message: str, error: str = "ValueError"
    ) -> None:
        """Put a record into the ``errors`` stream and continue without it."""
        entry = Failed(self._job, self._vertices[vertex].name, record, error, message)
        self._write_side_stream(ERRORS, vertex, counters, [entry])

    def _unstorable(self, vertex: int, record: Record, reason: str) -> None:
        """End the job because a sink cannot store a record."""
        cause = f"{UnstorableValueError.__name__}: {reason}"
        raise TaskError(self._job, self._vertices[vertex].name, shorten(record), cause)

    def reject_misfits(self, vertex: int, counters: Counters, rejected: list[tuple[Record, str]]) -> None:
        """Put records that do not fit the schema of a vertex into the ``errors`` stream."""
        for record, reason in rejected:
            self.reject(vertex, counters, record, reason, "SchemaMismatch")

    def _misfits_in_spark(self, vertex: int, rejected: list[tuple[Record, str]]) -> None:
        self.reject_misfits(vertex, self.no_counters, rejected)  # Vertices in Spark are never part of a loop.

    def late(self, vertex: int, record: Record, watermark: float) -> None:
        """Put a record into the ``late`` stream."""
        entry = Late(self._job, self._vertices[vertex].name, original_record(record), watermark)
        self._write_side_stream(LATE, vertex, self.no_counters, [entry])

    def _recover(
        self, vertex: int, counters: Counters, record: Record, error: BaseException, again: Any
    ) -> Any:
        policy = self._vertices[vertex].policy
        try:
            return retry(policy, error, again)
        except Exception as last:
            if not policy.discard or isinstance(last, VertexFailureError):
                raise VertexFailureError(vertex, record, last) from last
            self.reject(vertex, counters, record, message_of(last), type(last).__name__)
            return None
        except BaseException as last:
            raise VertexFailureError(vertex, record, last) from last

    def _run(self) -> None:
        queue, program, arrow_steps = self._queue, self._program, self._program.arrow_steps
        scope = self.scope
        caller = scope.vertex
        while queue:
            vertex, port, counters, records = queue.popleft()
            scope.vertex = vertex
            if vertex in arrow_steps:
                self._run_columns(vertex, counters, records)
                continue
            try:
                step = program.step(vertex, scope.instance)
            except Exception as error:
                raise VertexFailureError(vertex, None, error) from error
            self._follow(vertex, counters, step(port, listed(records), self.error_handler(vertex, counters)))
        scope.vertex = caller

    def _run_columns(self, vertex: int, counters: Counters, given: Records) -> None:
        """Run a function of columns; if it raises, search for the rows that make it raise."""
        assert isinstance(given, Columns), f"{self._vertices[vertex].name} needs columns"
        step, output = self._program.arrow_steps[vertex], self._vertices[vertex].outputs[0]
        parts = deque([given])
        while parts:
            part = parts.popleft()
            try:
                found = step(part)
            except BaseException as error:
                policy = self._vertices[vertex].policy
                if len(part) > 1 and policy.discard and isinstance(error, Exception):
                    parts.extendleft(reversed(part.halves()))
                    continue
                record = part.records()[0] if len(part) == 1 else Record(None, f"{len(part)} rows")
                found = self._recover(vertex, counters, record, error, partial(step, part)) or []
            for columns in found:
                self._follow(vertex, counters, [(output, columns)])

    def _fitting(self, vertex: int, counters: Counters, schema: Schema, given: Records) -> Columns:
        """Return the records that fit a schema as columns; the others go into the ``errors`` stream."""
        typed, rejected = given.cast(schema) if isinstance(given, Columns) else Columns.of(given, schema)
        if rejected:
            self.reject_misfits(vertex, counters, rejected)
        return typed

    def _follow(self, vertex: int, counters: Counters, emitted: Emitted) -> None:
        schema = self._vertices[vertex].schema
        for port, given in emitted:
            if not given:
                continue
            records = given if schema is None else self._fitting(vertex, counters, schema, given)
            if not records:
                continue
            self._count(self.summary.records_out, vertex, len(records))
            self._hop(vertex, port, counters, records)

    def _hop(self, vertex: int, port: str, counters: Counters, records: Records) -> None:
        for hop in self._plan.hops.get((vertex, port), ()):
            onward = counters
            if hop.closing is not None:
                onward = _incremented(counters, hop.closing.slot)
                if onward[hop.closing.slot] > hop.closing.limit:
                    count = onward[hop.closing.slot]
                    self._discard(hop.closing, hop.target, counters, count, listed(records))
                    continue
            self._deliver(hop, onward, records)

    def _deliver(self, hop: Hop, counters: Counters, records: Records) -> None:
        target, port, channel = hop.target, hop.port, hop.channel
        spec = self._vertices[target]
        if spec.input_schema is not None and (not isinstance(records, Columns) or records.schema is None):
            # Schemas declared at both ends were compared before the job started.
            records = self._fitting(target, counters, spec.input_schema, records)
        copies = self._instances[target] if hop.distribution is Distribution.TO_ALL else 1
        self._count(self.summary.records_in, target, len(records) * copies)
        if spec.kind == "sink":
            takes = partial(self.reject, target, counters)
            reject: Reject = takes if spec.policy.discard else partial(self._unstorable, target)
            self._writers.write(spec.name, records, reject)
        elif channel is Channel.EXCHANGE:
            self._send(target, port, self._relevant_counters(target, counters), records, hop.distribution)
        elif channel is Channel.NATIVE:
            self.natives.add(target, port, records)
        else:
            self._queue.append((target, port, counters, records))

    def _send(
        self,
        target: int,
        port: str,
        counters: Counters,
        given: Records,
        distribution: Distribution = Distribution.BY_KEY,
    ) -> None:
        """Send records through the shuffle; assigns them to windows if the vertex has time windows."""
        # The code of the vertex after the shuffle merges records before it.
        with vertex_call(self._vertices[target].name):
            self._put_into_outbox((target, port, counters), given, distribution)

    def _put_into_outbox(self, address: Address, given: Records, distribution: Distribution) -> None:
        target, _, counters = address
        gate = self._gate if target in self._program.gated else None
        late, wrong = partial(self.late, target), partial(self._handle_error, target, counters)
        if isinstance(given, Columns):
            if gate is not None:
                merged = gate.merge_columns(target, given, late, wrong)
            else:
                merged = self.outbox.merge_columns(target, given)
            if merged is not None:
                for cell, partials in merged.items():
                    self.outbox.add_partials(address, cell, partials)
                return
        records = listed(given)
        if self._vertices[target].in_order:
            # Aligned by order of arrival, so all records must go to the same bucket.
            records = [_new(Record, (None, record, record[2])) for record in records]
        parts = {None: records} if gate is None else gate.pass_through(target, records, late, wrong)
        for cell, its_records in parts.items():
            if target in self._instances:
                self.outbox.add_for_instances(address, its_records, distribution)
            else:
                self.outbox.add(address, its_records, cell)

    def _gather(self, vertex: int, records: list[Record]) -> None:
        """Send the records of a source to its windows: all to one bucket, or lane by lane."""
        assert self._gate is not None, "a source has a lane"
        whole = isinstance(self._vertices[vertex].window, TimeWindow)
        key = None if whole else self._gate.lane
        wrapped = [_new(Record, (key, record, record[2])) for record in records]
        self._send(vertex, WINDOW_PORT, self.no_counters, wrapped)

    def _handle_error(self, vertex: int, counters: Counters, record: Record, error: Exception) -> None:
        self._recover(vertex, counters, original_record(record), error, None)

    def _handle_unreadable(self, vertex: int, chunk: Rejected) -> None:
        spec = self._vertices[vertex]
        for piece, reason in chunk.pieces:
            if not spec.policy.discard:
                raise ConnectorError(self._job, spec.name, reason)
            self.reject(vertex, self.no_counters, Record(None, piece), reason)

    def _relevant_counters(self, target: int, counters: Counters) -> Counters:
        """Drop counters of loops that a record can no longer enter, so that it can be merged with others."""
        if not counters:
            return counters
        live = self._plan.live[target]
        return tuple(count if alive else 0 for count, alive in zip(counters, live, strict=True))

    def _discard(
        self, closing: LoopClosure, entry: int, counters: Counters, count: int, records: list[Record]
    ) -> None:
        entries = [
            Discarded(self._job, closing.entry, record, closing.cycle, count, closing.limit)
            for record in records
        ]
        self._write_side_stream(DISCARDED, entry, counters, entries)

    def _write_side_stream(self, stream: str, vertex: int, counters: Counters, entries: list[Any]) -> None:
        """Write entries into a side stream, and send them to the vertices connected to it.

        Connected vertices receive a late record in its original form, ready to be processed.
        """
        kept: list[SideEntry] = entries
        for entry in kept:
            self.summary.note(stream, entry)
        records = [entry.to_record() for entry in kept]
        if self._writers.has(SIDES[stream]):
            self._writers.write(SIDES[stream], records, None)
        if stream not in self._vertices[vertex].outputs:
            onward = [entry.record for entry in kept] if stream == LATE else records
            self._hop(vertex, stream, counters, onward)

    @staticmethod
    def _count(counts: dict[int, int], vertex: int, number: int) -> None:
        counts[vertex] = counts.get(vertex, 0) + number


def listed(records: Records) -> list[Record]:
    """Return records as a list."""
    return records.records() if isinstance(records, Columns) else records


def original_record(record: Record) -> Record:
    """Return the original record if it is wrapped in another one."""
    return record[1] if type(record[1]) is Record else record


def _incremented(counters: Counters, slot: int) -> Counters:
    return (*counters[:slot], counters[slot] + 1, *counters[slot + 1 :])
