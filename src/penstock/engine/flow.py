"""Moves records through the vertices of a job, inside one Spark task.

A worklist holds lists of records together with the vertex and port they go to and with the loop
counters that all records of the list share. Following an edge therefore costs nothing per record, and a
loop is only an edge that puts a list back onto the worklist.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

from penstock.engine.blueprint import Blueprint
from penstock.engine.exchange import Counters, Outbox
from penstock.engine.failure import Recover, VertexFailureError, try_again
from penstock.engine.gate import Gate
from penstock.engine.side import SIDES, Discarded, Failed, Late, SideEntry
from penstock.engine.steps import Emitted, Step, compile_step
from penstock.engine.summary import TaskSummary
from penstock.errors import ConnectorError, PenstockError, TaskError, UnstorableValueError
from penstock.graph.ends import Rejected, SinkWriter, WriteContext
from penstock.graph.vertex import DISCARDED, ERRORS, LATE
from penstock.graph.windows import TimeWindow
from penstock.plan.exchanges import GATHERED
from penstock.plan.physical import Channel, Closing
from penstock.record import Record

_new = tuple.__new__


class Program:
    """A blueprint whose vertices are ready to run; made once in each worker process."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.steps: list[Step | None] = []
        for index, vertex in enumerate(blueprint.vertices):
            try:
                self.steps.append(compile_step(vertex))
            except Exception as error:
                failure = VertexFailureError(index, None, error)
                raise failure.explain(blueprint.job, vertex.name) from error
        self.no_counters: Counters = (0,) * len(blueprint.plan.loops)
        self.gated = {timed.vertex for timed in blueprint.plan.timed}
        """Vertices behind the shuffle that records can only get to through a gate, which knows the time."""


class Flow:
    """The way of records through a program, for one Spark task of one batch."""

    def __init__(self, program: Program, batch: int, task: str, gate: Gate | None = None) -> None:
        self._program = program
        self._plan = program.blueprint.plan
        self._vertices = program.blueprint.vertices
        self._sinks = program.blueprint.sinks
        self._batch = batch
        self._task = task
        self._gate = gate
        self.no_counters = program.no_counters
        self._queue: deque[tuple[int, str, Counters, list[Record]]] = deque()
        self._writers: dict[str, SinkWriter] = {}
        self.outbox = Outbox(program.blueprint, self.recovers, gate.lane if gate is not None else "")
        self.summary = TaskSummary(batch)

    def read(self, vertex: int, chunk: list[Record] | Rejected) -> None:
        """Take what a source has read, and let everything run that follows from it."""
        if isinstance(chunk, Rejected):
            self._refuse(vertex, chunk)
        elif self._vertices[vertex].window is None:
            self.leave(vertex, self.no_counters, [("out", chunk)])
        else:
            self._count(self.summary.records_out, vertex, len(chunk))
            self._gather(vertex, chunk)
            self._run()

    def enter(self, vertex: int, port: str, counters: Counters, records: list[Record]) -> None:
        """Bring records to a vertex and let everything run that follows from them."""
        self._queue.append((vertex, port, counters, records))
        self._run()

    def leave(self, vertex: int, counters: Counters, emitted: Emitted) -> None:
        """Send on what a vertex has emitted, and let everything run that follows from it."""
        self._follow(vertex, counters, emitted)
        self._run()

    def finish(self) -> TaskSummary:
        """Seal what was written to sinks. What they refuse goes on, so parcels are drained after this."""
        self._run()
        while self._writers:
            # Side streams come last: sinks may still send something into them.
            sink = min(self._writers, key=lambda name: (name.startswith("@"), list(self._sinks).index(name)))
            writer = self._writers.pop(sink)
            try:
                receipt = writer.finish()
            except Exception as error:
                raise self._sink_failure(sink, error) from error
            if receipt is not None:
                self.summary.receipts.setdefault(sink, []).append(receipt)
            self._run()
        if self._gate is not None:
            self.summary.highs = self._gate.highs
        return self.summary

    def recovers(self, vertex: int, counters: Counters) -> Recover:
        """Return how a vertex copes with a record that it cannot work on."""
        return partial(self._recover, vertex, counters)

    def reject(
        self, vertex: int, counters: Counters, record: Record, message: str, error: str = "ValueError"
    ) -> None:
        """Put a record into the stream of errors, and go on without it."""
        name = self._vertices[vertex].name
        self._aside(
            ERRORS, vertex, counters, [Failed(self._program.blueprint.job, name, record, error, message)]
        )

    def late(self, vertex: int, record: Record, watermark: float) -> None:
        """Put a record into the stream of late records."""
        name = self._vertices[vertex].name
        entry = Late(self._program.blueprint.job, name, unwrapped(record), watermark)
        self._aside(LATE, vertex, self.no_counters, [entry])

    def _recover(
        self, vertex: int, counters: Counters, record: Record, error: BaseException, again: Any
    ) -> Any:
        policy = self._vertices[vertex].policy
        try:
            return try_again(policy, error, again)
        except Exception as last:
            if not policy.discard or isinstance(last, VertexFailureError):
                raise VertexFailureError(vertex, record, last) from last
            self.reject(vertex, counters, record, _text(last), type(last).__name__)
            return None
        except BaseException as last:
            raise VertexFailureError(vertex, record, last) from last

    def _run(self) -> None:
        queue, steps = self._queue, self._program.steps
        while queue:
            vertex, port, counters, records = queue.popleft()
            step = steps[vertex]
            assert step is not None, f"{self._vertices[vertex].name} is not run record by record"
            self._follow(vertex, counters, step(port, records, self.recovers(vertex, counters)))

    def _follow(self, vertex: int, counters: Counters, emitted: Emitted) -> None:
        for port, records in emitted:
            if not records:
                continue
            self._count(self.summary.records_out, vertex, len(records))
            self._hop(vertex, port, counters, records)

    def _hop(self, vertex: int, port: str, counters: Counters, records: list[Record]) -> None:
        for hop in self._plan.hops.get((vertex, port), ()):
            onward = counters
            if hop.closing is not None:
                onward = _bump(counters, hop.closing.slot)
                if onward[hop.closing.slot] > hop.closing.limit:
                    self._discard(hop.closing, hop.target, counters, onward[hop.closing.slot], records)
                    continue
            for _ in range(hop.copies):
                self._deliver(hop.target, hop.port, hop.channel, onward, records)

    def _deliver(
        self, target: int, port: str, channel: Channel, counters: Counters, records: list[Record]
    ) -> None:
        spec = self._vertices[target]
        self._count(self.summary.records_in, target, len(records))
        if spec.kind == "sink":
            self._write(spec.name, target, counters, records)
        elif channel is Channel.EXCHANGE:
            self._send(target, port, self._still_counted(target, counters), records)
        else:
            self._queue.append((target, port, counters, records))

    def _send(self, target: int, port: str, counters: Counters, records: list[Record]) -> None:
        if self._vertices[target].in_order:
            # Aligned by the order of coming, so all of them have to come to the same place.
            records = [_new(Record, (None, record, record[2])) for record in records]
        if self._gate is None or target not in self._program.gated:
            self.outbox.add((target, port, counters), records)
            return
        late, wrong = partial(self.late, target), partial(self._wrong, target, counters)
        for cell, its_records in self._gate.pass_through(target, records, late, wrong).items():
            self.outbox.add((target, port, counters), its_records, cell)

    def _gather(self, vertex: int, records: list[Record]) -> None:
        """Send the records of a source to where its windows are: all to one place, or lane by lane."""
        assert self._gate is not None, "a source is read in a lane"
        whole = isinstance(self._vertices[vertex].window, TimeWindow)
        key = None if whole else self._gate.lane
        wrapped = [_new(Record, (key, record, record[2])) for record in records]
        self._send(vertex, GATHERED, self.no_counters, wrapped)

    def _wrong(self, vertex: int, counters: Counters, record: Record, error: Exception) -> None:
        self._recover(vertex, counters, unwrapped(record), error, None)

    def _refuse(self, vertex: int, chunk: Rejected) -> None:
        spec = self._vertices[vertex]
        for piece, reason in chunk.pieces:
            if not spec.policy.discard:
                raise ConnectorError(self._program.blueprint.job, spec.name, reason)
            self.reject(vertex, self.no_counters, Record(None, piece), reason)
        self._run()

    def _still_counted(self, target: int, counters: Counters) -> Counters:
        """Forget loops that a record can no longer go round, so that it may be merged with others."""
        if not counters:
            return counters
        live = self._plan.live[target]
        return tuple(count if alive else 0 for count, alive in zip(counters, live, strict=True))

    def _write(self, sink: str, vertex: int | None, counters: Counters, records: list[Record]) -> None:
        writer = self._writers.get(sink)
        try:
            if writer is None:
                writer = self._writers[sink] = self._sinks[sink].writer(self._context(sink, vertex, counters))
            writer.write(records)
        except Exception as error:
            raise self._sink_failure(sink, error) from error

    def _context(self, sink: str, vertex: int | None, counters: Counters) -> WriteContext:
        reject = None
        if vertex is not None and self._vertices[vertex].policy.discard:
            reject = partial(self.reject, vertex, counters)
        return WriteContext(self._program.blueprint.job, sink, self._batch, self._task, reject)

    def _sink_failure(self, sink: str, error: Exception) -> Exception:
        """A value that has no form in a sink is the job's mistake; all else is the sink's own trouble."""
        job = self._program.blueprint.job
        if isinstance(error, UnstorableValueError):
            return TaskError(job, sink, "its input", f"{type(error).__name__}: {error}")
        return error if isinstance(error, PenstockError) else ConnectorError.of(job, sink, error)

    def _discard(
        self, closing: Closing, entry: int, counters: Counters, count: int, records: list[Record]
    ) -> None:
        job = self._program.blueprint.job
        entries = [
            Discarded(job, closing.entry, record, closing.cycle, count, closing.limit) for record in records
        ]
        self._aside(DISCARDED, entry, counters, entries)

    def _aside(self, stream: str, vertex: int, counters: Counters, entries: list[Any]) -> None:
        """Write entries into a side stream, and send them to whatever is connected to it.

        A late record goes to what is connected as the record that it was, ready to be worked on.
        """
        kept: list[SideEntry] = entries
        for entry in kept:
            self.summary.note(stream, entry)
        records = [entry.to_record() for entry in kept]
        side = SIDES[stream]
        if side in self._sinks:
            self._write(side, None, counters, records)
        if stream not in self._vertices[vertex].outputs:
            onward = [entry.record for entry in kept] if stream == LATE else records
            self._hop(vertex, stream, counters, onward)

    @staticmethod
    def _count(counts: dict[int, int], vertex: int, number: int) -> None:
        counts[vertex] = counts.get(vertex, 0) + number


def unwrapped(record: Record) -> Record:
    """Return the record itself where it travels inside another one."""
    return record[1] if type(record[1]) is Record else record


def _bump(counters: Counters, slot: int) -> Counters:
    return (*counters[:slot], counters[slot] + 1, *counters[slot + 1 :])


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its message cannot be shown)"
