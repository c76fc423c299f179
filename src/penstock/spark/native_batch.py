"""The part of a batch that Spark runs itself: SQL and DataFrame vertices, in one query plan.

Input arrives as columns in the rows of the Python stages, or Spark reads it itself. Results continue in
Python, before the shuffle, or go into files that Spark writes. None of them is visible before the batch is
committed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from penstock.columns import Columns
from penstock.engine.batch_report import ReportedPart, TaskSummary
from penstock.engine.blueprint import Blueprint, VertexSpec
from penstock.engine.driver.batch_result import merge_result
from penstock.engine.execution.batch_stages import NATIVE, ResumedPart, failure_row, run_resumed_stage
from penstock.engine.execution.blueprint_transfer import load_program
from penstock.engine.execution.native_outbox import runs_in_spark, writes_in_spark
from penstock.engine.job_sources import SourcePositions
from penstock.engine.record_digest import add_digests
from penstock.engine.storage.ledger import LedgerEntry
from penstock.engine.windows.watermarks import BatchClock, TimeProgress
from penstock.errors import PenstockError, TaskError, cause_of, trace_of
from penstock.spark.batch_rows import collect_rows, row_schema, to_batches
from penstock.spark.native_frames import RowDigest, make_frame, read_files, row_count, with_ends, write_files
from penstock.spark.spark_failures import is_java_lost, sentence, task_error, transient_reason
from penstock.spark.spark_output import quiet
from penstock.vertex_calls import connector_call, vertex_call

_ARROW = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
}
"""Rows can be single records here, so batches must not be as small as elsewhere. Each query has its own
session."""

KeyedHalf = Callable[[Any], Any]
"""Applies the keyed stage to a frame of rows."""


class NativeStage:
    """Runs the batches of a job with vertices in Spark."""

    def __init__(self, blueprint: Blueprint, worker: bytes, keyed: KeyedHalf | None) -> None:
        self.blueprint = blueprint
        self.worker = worker
        self.keyed = keyed
        self.positions = SourcePositions(blueprint)
        self.natives: dict[str, VertexSpec] = {
            blueprint.vertices[index].name: blueprint.vertices[index] for index in blueprint.plan.native.order
        }

    def run(self, frame: Any, before: LedgerEntry | None) -> TaskSummary:
        """Run the batch after ``before``, and return its summary."""
        note = json.loads(self.blueprint.folders.planned.read_text())
        end = note["end"]
        summary = TaskSummary(note["batch"], end=end)
        if note["empty"]:
            summary.part = ReportedPart(0, 1, empty=True)
            return summary
        times = TimeProgress.of(before.times if before is not None else None)
        clock = BatchClock(end.get("now", 0.0), bool(end.get("flush")), times)
        batch = _Batch(self, frame, note, clock, summary)
        try:
            with quiet():
                batch.run()
        except PenstockError:
            raise
        except Exception as error:
            if is_java_lost(error) or transient_reason(error) is not None:
                raise
            raise task_error(self.blueprint.job, self.natives, error) from error
        finally:
            batch.close()
        return summary


class _Batch:
    def __init__(
        self, half: NativeStage, frame: Any, note: dict[str, Any], clock: BatchClock, summary: TaskSummary
    ) -> None:
        self._clock = clock
        self._summary = summary
        self._half = half
        self._blueprint = half.blueprint
        self._plan = half.blueprint.plan
        self._frame = frame
        self._note = note
        self._session = frame.sparkSession
        for name, value in _ARROW.items():
            self._session.conf.set(name, value)
        self._rows: list[tuple[Any, tuple[int, ...]]] = []
        """Frames of rows from Python, each with the slots that it may fill."""
        self._results: dict[int, Any] = {}
        """The result frame of each vertex."""
        self._kept: list[Any] = []

    def run(self) -> None:
        native = self._plan.native
        if self._note["parts"] or self._plan.needs_exchange:
            feeds = native.source_feeds if self._note["parts"] else ()
            self._rows.append((self._shared(self._frame, 1 + len(feeds)), feeds))
        written = []
        for vertex, feeds in zip(native.order, native.feeds, strict=True):
            spec = self._blueprint.vertices[vertex]
            frames = {port: self._input(vertex, port) for port in spec.inputs}
            frame = self._make(spec, frames)
            hops = self._plan.hops.get((vertex, "out"), ())
            onward = [hop for hop in hops if runs_in_spark(self._blueprint, hop)]
            goes_on = self._continues_in_python(vertex)
            frame = self._results[vertex] = self._shared(frame, len(onward) + goes_on)
            if goes_on:
                part = ResumedPart(self._note["batch"], vertex, self._clock, self._note["end"].get("slots"))
                resumed = frame.mapInArrow(_resumed(self._half.worker, part), row_schema(native))
                self._rows.append((self._shared(resumed, 1 + len(feeds)), feeds))
            sinks = [hop.target for hop in onward if writes_in_spark(self._blueprint, hop.target)]
            written += [(frame, vertex, sink) for sink in sinks]
        for frame, vertex, sink in written:
            self._write(frame, vertex, sink)
        self._finish()

    def _make(self, spec: VertexSpec, frames: dict[str, Any]) -> Any:
        try:
            with vertex_call(spec.name):
                return make_frame(self._session, spec, frames)
        except Exception as error:
            cause = sentence(error) if hasattr(error, "getCondition") else cause_of(error)
            raise TaskError(self._blueprint.job, spec.name, "a batch", cause, trace_of(error)) from error

    def close(self) -> None:
        """Release the cached frames."""
        for frame in self._kept:
            with suppress(Exception):  # Java may have died; then nothing is cached.
                frame.unpersist()

    def _shared(self, frame: Any, uses: int) -> Any:
        """Cache a frame that is used more than once: Spark would compute it each time."""
        if uses > 1:
            frame = frame.persist()
            self._kept.append(frame)
        return frame

    def _input(self, vertex: int, port: str) -> Any:
        """Return the frame of all records for a port in this batch."""
        parts = [*self._from_python(vertex, port), *self._from_spark(vertex, port)]
        if not parts:
            return self._empty(vertex, port)
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.unionByName(part, allowMissingColumns=True)
        return whole

    def _from_python(self, vertex: int, port: str) -> Iterator[Any]:
        for number, slot in enumerate(self._plan.native.slots):
            if (slot.vertex, slot.port) == (vertex, port):
                for rows, feeds in self._rows:
                    if number in feeds:
                        chosen = rows.where(f"kind = {NATIVE} AND slot = {number}")
                        yield chosen.select(f"n{number}.*")

    def _from_spark(self, vertex: int, port: str) -> Iterator[Any]:
        for (sender, _), hops in self._plan.hops.items():
            if any((hop.target, hop.port) == (vertex, port) for hop in hops):
                spec = self._blueprint.vertices[sender]
                if sender in self._results:
                    yield with_ends(self._results[sender])
                elif spec.name in self._blueprint.read_by_spark:
                    yield from self._read(sender, vertex)

    def _read(self, sender: int, target: int) -> Iterator[Any]:
        """Yield the frame of a source's range, if Spark can read it itself."""
        spec = self._blueprint.vertices[sender]
        how = self._half.positions.native(spec.name, self._note["start"], self._note["end"]["sources"])
        if how is None or not how["paths"]:
            return
        yield read_files(self._session, how, spec.schema)
        rows = row_count(how["format"], how["paths"]) or 0
        self._summary.records_out[sender] = rows
        self._count(self._summary.records_in, target, rows)

    def _empty(self, vertex: int, port: str) -> Any:
        native = self._plan.native
        number = native.slot_of(vertex, port)
        rows = self._session.createDataFrame([], row_schema(native))
        return rows.select(f"n{number}.*")

    def _write(self, frame: Any, vertex: int, sink: int) -> None:
        """Let Spark write files to the staging folder of a sink, and pass them to the sink."""
        spec = self._blueprint.vertices[sink]
        target = spec.operator.native_target(self._blueprint.job)
        digest = RowDigest() if self._blueprint.replica_spec is not None else None
        task, files = write_files(frame, target, self._note["batch"], digest)
        if digest is not None:
            add_digests(self._summary.digests, {spec.name: digest.value()})
        with connector_call(self._blueprint.job, spec.name):
            receipt = spec.operator.adopt(self._blueprint.job, self._note["batch"], task, files)
        if receipt is not None:
            self._summary.receipts.setdefault(spec.name, []).append(receipt)
        rows = row_count(target["format"], files) or 0
        self._count(self._summary.records_in, sink, rows)
        # If Python continues with the same result, it counts the records too.
        self._summary.records_out.setdefault(vertex, 0)
        if not self._continues_in_python(vertex):
            self._summary.records_out[vertex] = rows

    def _continues_in_python(self, vertex: int) -> bool:
        """Return whether Python continues with the result of a vertex."""
        hops = self._plan.hops.get((vertex, "out"), ())
        return any(not runs_in_spark(self._blueprint, hop) for hop in hops)

    @staticmethod
    def _count(counts: dict[int, int], vertex: int, number: int) -> None:
        counts[vertex] = counts.get(vertex, 0) + number

    def _finish(self) -> None:
        """Run the rows of all Python parts through the keyed stage, and merge the summaries."""
        if not self._rows:
            return
        rows = None
        for frame, feeds in self._rows:
            part = frame.where(f"kind < {NATIVE}") if feeds else frame
            part = part.select("slot", "kind", "data")
            rows = part if rows is None else rows.union(part)
        if self._half.keyed is not None:
            rows = self._half.keyed(rows)
        assert rows is not None
        job, batch = self._blueprint.job, self._note["batch"]
        # The number of tasks after vertices in Spark does not follow from the plan: Spark counts their rows.
        result = collect_rows(rows, job, batch, counted=True)
        self._summary.absorb(merge_result(self._blueprint, batch, result, planned=self._planned))

    @property
    def _planned(self) -> int:
        """Return the number of parts of the direct stage; at least one, which may be empty."""
        return int(self._note["parts"]) or int(self._plan.needs_exchange)


def _resumed(packed: bytes, part: ResumedPart) -> Any:
    def run(batches: Any) -> Any:
        try:
            program = load_program(packed)
        except PenstockError as error:
            return to_batches([failure_row(part.batch, error)])
        chunks = (Columns.from_batch(found) for found in batches)
        rows = run_resumed_stage(program, part, chunks, _task_number())
        return to_batches(rows, program.blueprint.plan.native)

    return run


def _task_number() -> int:
    """Return the number of this Spark task within its stage."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())
