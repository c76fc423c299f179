"""Moves records through the vertices of a job, inside one Spark task.

A worklist holds lists of records together with the vertex and port they go to and with the loop
counters that all records of the list share. Following an edge therefore costs nothing per record, and a
loop is only an edge that puts a list back onto the worklist.
"""

from __future__ import annotations

from collections import deque

from penstock.engine.blueprint import DISCARDED, Blueprint
from penstock.engine.exchange import Counters, Outbox
from penstock.engine.failure import VertexFailureError
from penstock.engine.steps import Emitted, Step, compile_step
from penstock.engine.summary import SAMPLE, Discarded, TaskSummary
from penstock.errors import ConnectorError, PenstockError, TaskError, UnstorableValueError
from penstock.graph.ends import SinkWriter, WriteContext
from penstock.plan.physical import Channel, Closing
from penstock.record import Record


class Program:
    """A blueprint whose vertices are ready to run; made once in each worker process."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.steps: list[Step | None] = []
        for index, vertex in enumerate(blueprint.vertices):
            try:
                self.steps.append(compile_step(index, vertex))
            except Exception as error:
                failure = VertexFailureError(index, None, error)
                raise failure.explain(blueprint.job, vertex.name) from error
        self.no_counters: Counters = (0,) * len(blueprint.plan.loops)


class Flow:
    """The way of records through a program, for one Spark task of one batch."""

    def __init__(self, program: Program, batch: int, task: str) -> None:
        self._program = program
        self._plan = program.blueprint.plan
        self._vertices = program.blueprint.vertices
        self._sinks = program.blueprint.sinks
        self._batch = batch
        self._task = task
        self._queue: deque[tuple[int, str, Counters, list[Record]]] = deque()
        self._writers: dict[str, SinkWriter] = {}
        self.outbox = Outbox(program.blueprint)
        self.summary = TaskSummary(batch)

    def enter(self, vertex: int, port: str, counters: Counters, records: list[Record]) -> None:
        """Bring records to a vertex and let everything run that follows from them."""
        self._queue.append((vertex, port, counters, records))
        self._run()

    def leave(self, vertex: int, counters: Counters, emitted: Emitted) -> None:
        """Send on what a vertex has emitted, and let everything run that follows from it."""
        self._follow(vertex, counters, emitted)
        self._run()

    def finish(self) -> TaskSummary:
        """Seal what was written to sinks and return the summary."""
        for sink, writer in self._writers.items():
            try:
                receipt = writer.finish()
            except Exception as error:
                raise self._sink_failure(sink, error) from error
            if receipt is not None:
                self.summary.receipts[sink] = [receipt]
        return self.summary

    def _run(self) -> None:
        queue, steps = self._queue, self._program.steps
        while queue:
            vertex, port, counters, records = queue.popleft()
            step = steps[vertex]
            assert step is not None, f"{self._vertices[vertex].name} is not run record by record"
            self._follow(vertex, counters, step(port, records))

    def _follow(self, vertex: int, counters: Counters, emitted: Emitted) -> None:
        out = self.summary.records_out
        for port, records in emitted:
            if not records:
                continue
            out[vertex] = out.get(vertex, 0) + len(records)
            for hop in self._plan.hops.get((vertex, port), ()):
                onward = counters
                if hop.closing is not None:
                    onward = _bump(counters, hop.closing.slot)
                    if onward[hop.closing.slot] > hop.closing.limit:
                        self._discard(hop.closing, onward[hop.closing.slot], records)
                        continue
                for _ in range(hop.copies):
                    self._deliver(hop.target, hop.port, hop.channel, onward, records)

    def _deliver(
        self, target: int, port: str, channel: Channel, counters: Counters, records: list[Record]
    ) -> None:
        spec = self._vertices[target]
        taken = self.summary.records_in
        taken[target] = taken.get(target, 0) + len(records)
        if spec.kind == "sink":
            self._write(spec.name, records)
        elif channel is Channel.EXCHANGE:
            self.outbox.add((target, port, self._still_counted(target, counters)), records)
        else:
            self._queue.append((target, port, counters, records))

    def _still_counted(self, target: int, counters: Counters) -> Counters:
        """Forget loops that a record can no longer go round, so that it may be merged with others."""
        if not counters:
            return counters
        live = self._plan.live[target]
        return tuple(count if alive else 0 for count, alive in zip(counters, live, strict=True))

    def _write(self, sink: str, records: list[Record]) -> None:
        writer = self._writers.get(sink)
        try:
            if writer is None:
                context = WriteContext(self._program.blueprint.job, sink, self._batch, self._task)
                writer = self._writers[sink] = self._sinks[sink].writer(context)
            writer.write(records)
        except Exception as error:
            raise self._sink_failure(sink, error) from error

    def _sink_failure(self, sink: str, error: Exception) -> Exception:
        """A value that has no form in a sink is the job's mistake; all else is the sink's own trouble."""
        job = self._program.blueprint.job
        if isinstance(error, UnstorableValueError):
            return TaskError(job, sink, "its input", f"{type(error).__name__}: {error}")
        return error if isinstance(error, PenstockError) else ConnectorError.of(job, sink, error)

    def _discard(self, closing: Closing, count: int, records: list[Record]) -> None:
        job = self._program.blueprint.job
        entries = [
            Discarded(job, closing.entry, closing.cycle, count, closing.limit, record) for record in records
        ]
        counted = self.summary.discarded
        counted[closing.entry] = counted.get(closing.entry, 0) + len(entries)
        sample = self.summary.discarded_sample
        sample.extend(entries[: SAMPLE - len(sample)])
        self._write(DISCARDED, [entry.to_record() for entry in entries])


def _bump(counters: Counters, slot: int) -> Counters:
    return (*counters[:slot], counters[slot] + 1, *counters[slot + 1 :])
