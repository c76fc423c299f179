"""A job as a Structured Streaming query: how it starts, commits each batch, and stops between batches."""

from __future__ import annotations

import pickle
import threading
import time
from contextlib import suppress
from typing import Any

from penstock.engine.blueprint import Blueprint
from penstock.engine.clock import Times, advance, due
from penstock.engine.ledger import Entry, Ledger
from penstock.engine.packing import unpack
from penstock.engine.positions import Positions
from penstock.engine.report import Report, VertexReport
from penstock.engine.stages import SUMMARY, failure_row, run_keyed
from penstock.engine.state import remove_before
from penstock.engine.summary import TaskSummary
from penstock.errors import ConnectorError, JobFailedError, PenstockError
from penstock.spark.rows import SCHEMA, from_batches, to_batches
from penstock.spark.shipping import pack_blueprint, program_of
from penstock.spark.source import PenstockSource

_ENTRIES_KEPT = 20
_STOP_SECONDS = 60.0


class JobQuery:
    """The running query of one job. ``changed`` is notified after each batch and when the query ends."""

    def __init__(self, session: Any, blueprint: Blueprint, last: Entry | None) -> None:
        self._session = session
        self._blueprint = blueprint
        self._ledger = Ledger(blueprint.folders.ledger)
        self._positions = Positions(blueprint)
        self._last = last
        self._query: Any = None
        self._failure: Exception | None = None
        self._names = [vertex.name for vertex in blueprint.vertices]
        self._kinds = [vertex.kind for vertex in blueprint.vertices]
        self.changed = threading.Condition()
        self.report = Report(blueprint.job, {name: VertexReport() for name in self._names})

    def start(self) -> None:
        """Start the query; batches run in a thread of Spark's own from now on."""
        folders = self._blueprint.folders
        for leftover in (folders.stop_request, folders.stop_answer, folders.failure):
            leftover.unlink(missing_ok=True)
        packed = pack_blueprint(self._blueprint.for_planner())
        worker = pack_blueprint(self._blueprint.for_workers())
        place = folders.checkpoint.with_name("blueprint")
        place.write_bytes(pickle.dumps((packed, worker)))
        self._session.dataSource.register(PenstockSource)
        frame = self._session.readStream.format("penstock").option("blueprint", str(place)).load()
        if self._blueprint.plan.needs_exchange:
            frame = frame.repartitionById(self._blueprint.buckets, frame["bucket"])
            frame = frame.mapInArrow(_keyed_half(worker), SCHEMA)
        self._query = (
            frame.writeStream.foreachBatch(self._run_batch)
            .option("checkpointLocation", str(folders.checkpoint))
            .start()
        )

    def _run_batch(self, frame: Any, spark_batch: int) -> None:
        started = time.monotonic()
        try:
            summary = TaskSummary(spark_batch)
            for _, kind, data in frame.collect():
                assert kind == SUMMARY, "only summaries leave a batch"
                summary.absorb(unpack(bytes(data))[0])
            if summary.failure is not None:
                raise summary.failure
            # Spark counts anew when its checkpoint is lost; the ledger goes on counting.
            self._commit(summary.end["batch"] - 1, summary)
        except Exception as error:
            self._failure = error
            raise
        with self.changed:
            self.report.add(self._names, self._kinds, summary, time.monotonic() - started)
            self.changed.notify_all()

    def _commit(self, batch: int, summary: TaskSummary) -> None:
        before = self._last
        sinks = self._blueprint.sinks
        entry = Entry(
            batch=batch,
            end=summary.end,
            receipts={
                name: receipts for name, receipts in summary.receipts.items() if sinks[name].transactional
            },
            feedback=summary.feedback,
            state={**(before.state if before else {}), **summary.state},
            buckets=self._blueprint.buckets,
            times=advance(self._blueprint, summary),
        )
        if not self._ledger.commit(entry):
            # The batch happened before a crash: what it did then stands, and is made visible now.
            found = self._ledger.read(batch)
            assert found is not None
            entry = found
            summary.receipts = dict(entry.receipts)
        publish(self._blueprint, batch, summary.receipts)
        self._last = entry
        self._tidy(before, entry)

    def _tidy(self, before: Entry | None, entry: Entry) -> None:
        if before is None or before.batch != entry.batch - 1:
            return
        folders = self._blueprint.folders
        for name in before.feedback:
            (folders.feedback / name).unlink(missing_ok=True)
        for bucket, head in entry.state.items():
            known = before.state.get(bucket)
            if known is not None and known.base_batch != head.base_batch:
                remove_before(folders.state, bucket, head.base_batch)
        if entry.batch % _ENTRIES_KEPT == 0:
            self._ledger.trim(_ENTRIES_KEPT)

    @property
    def drained(self) -> bool:
        """Whether everything that the sources have is processed, loops included."""
        if self._last is not None and self._last.feedback:
            return False
        if not self._positions.exhausted(self._reached()):
            return False
        if self._last is None or not self._positions.bounded:
            return True
        return not due(self._blueprint, Times.of(self._last.times), time.time(), at_end=True)

    @property
    def lag(self) -> int | None:
        """How many records wait in the sources, as far as they can tell."""
        return self._positions.lag(self._reached())

    def _reached(self) -> dict[str, Any]:
        return self._last.end["sources"] if self._last is not None else {}

    def check(self) -> None:
        """Raise what ended the query, if anything has."""
        if self._failure is not None:
            raise self._named(self._failure)
        try:
            if self._query.isActive:
                return
        except Exception as lost:
            raise JobFailedError(
                f"job {self._blueprint.job!r} failed: Spark's Java process does not answer any more"
            ) from lost
        if self._failure is not None:  # It failed between the two questions.
            raise self._named(self._failure)
        planning = self._blueprint.folders.failure
        if planning.exists():
            raise pickle.loads(planning.read_bytes())  # noqa: S301 - written by our own planner
        error = self._query.exception()
        raise self._named(error or JobFailedError("the query has stopped"))

    def _named(self, error: Exception) -> Exception:
        if isinstance(error, PenstockError | BrokenPipeError):
            return error
        text = str(error).strip() or type(error).__name__
        reason = text.splitlines()[0]
        if "Python worker exited unexpectedly" in text:
            reason = "a Python worker process died while it ran the job's code"
        return JobFailedError(f"job {self._blueprint.job!r} failed: {reason}", text)

    def stop(self) -> None:
        """Let the batch that runs end, start no other, and stop."""
        folders = self._blueprint.folders
        if self._query is None:
            return
        folders.stop_request.touch()
        deadline = time.monotonic() + _STOP_SECONDS
        with suppress(Exception):  # Java may have died; then there is nothing to stop.
            while self._query.isActive and not folders.stop_answer.exists() and time.monotonic() < deadline:
                time.sleep(0.002)
            self._query.stop()
        folders.stop_request.unlink(missing_ok=True)
        folders.stop_answer.unlink(missing_ok=True)


def publish(blueprint: Blueprint, batch: int, receipts: dict[str, list[Any]]) -> None:
    """Make a batch visible in its sinks."""
    for name, sink in blueprint.sinks.items():
        if receipts.get(name):
            try:
                sink.commit(batch, receipts[name])
            except (PenstockError, BrokenPipeError):
                raise
            except Exception as error:
                raise ConnectorError.of(blueprint.job, name, error) from error


def _keyed_half(packed: bytes) -> Any:
    def run(batches: Any) -> Any:
        try:
            program = program_of(packed)
        except PenstockError as error:
            return to_batches([failure_row(-1, error)])
        return to_batches(run_keyed(program, from_batches(batches)))

    return run
