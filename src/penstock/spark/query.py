"""A job as a Structured Streaming query: how it starts, commits each batch, and stops between batches."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from penstock.engine.agreement.next_window import is_whole
from penstock.engine.agreement.output import AgreedOutput, Offer
from penstock.engine.blueprint import Blueprint
from penstock.engine.clock import Times, advance, due
from penstock.engine.digest import chained
from penstock.engine.ledger import Entry, Ledger
from penstock.engine.packing import unpack
from penstock.engine.positions import Positions
from penstock.engine.publishing import acknowledge, publish
from penstock.engine.report import Report, VertexReport
from penstock.engine.stages import SUMMARY, failure_row, run_keyed
from penstock.engine.state import remove_before
from penstock.engine.summary import TaskSummary
from penstock.errors import JobFailedError, PenstockError
from penstock.spark.native import NativeHalf
from penstock.spark.native_check import check_natives
from penstock.spark.rows import SCHEMA, from_batches, row_schema, to_batches
from penstock.spark.shipping import pack_blueprint, program_of
from penstock.spark.source import LET_OUT, PenstockSource

_ENTRIES_KEPT = 20
_STOP_SECONDS = 60.0
_START_SECONDS = 60.0


class JobQuery:
    """The running query of one job. ``changed`` is notified after each batch and when the query ends.

    A query that comes after another of the same job goes on with its report.
    """

    def __init__(self, session: Any, blueprint: Blueprint, before: JobQuery | None = None) -> None:
        self.blueprint = blueprint
        self.last: Entry | None = None
        """The last batch that has happened."""
        self.ended_at = 0.0
        """When the last batch ended, by the monotonic clock."""
        self.ready_at = 0.0
        self._session = session
        self._ledger = Ledger(blueprint.folders.ledger)
        self._positions = Positions(blueprint)
        self._agreed = AgreedOutput(blueprint) if blueprint.member is not None else None
        self._query: Any = None
        self._native: NativeHalf | None = None
        self._failure: Exception | None = None
        self._packed: tuple[bytes, bytes] | None = None
        self._names = [vertex.name for vertex in blueprint.vertices]
        self._kinds = [vertex.kind for vertex in blueprint.vertices]
        self.changed: threading.Condition = before.changed if before else threading.Condition()
        self.report: Report = before.report if before else Report(blueprint.job, {})

    def pack(self) -> None:
        """Make of the code what is sent to the workers; raises TaskError when that is not possible.

        What Spark runs itself is looked at by Spark first: GraphError says what is wrong with it.
        """
        if self.blueprint.plan.native.order:
            check_natives(self._session, self.blueprint)
        self._packed = (
            pack_blueprint(self.blueprint.for_planner()),
            pack_blueprint(self.blueprint.for_workers()),
        )

    def start(self, last: Entry | None) -> None:
        """Start the query; batches run in a thread of Spark's own from now on."""
        assert self._packed is not None, "packed before it is started"
        folders = self.blueprint.folders
        for leftover in (folders.stop_request, folders.stop_answer, folders.failure, folders.ready):
            leftover.unlink(missing_ok=True)
        self.last = last
        for name in self._names:
            self.report.vertices.setdefault(name, VertexReport())
        self._blueprint_file.write_bytes(pickle.dumps(self._packed))
        worker = self._packed[1]
        self._packed = None
        self._session.dataSource.register(PenstockSource)
        plan = self.blueprint.plan
        frame = self._session.readStream.format("penstock").option("blueprint", str(self._blueprint_file))
        frame = frame.option("rows", row_schema(plan.native)).load()
        keyed = partial(_behind_shuffle, self.blueprint.buckets, worker) if plan.needs_exchange else None
        if plan.native.order:
            self._native = NativeHalf(self.blueprint, worker, keyed)
        elif keyed is not None:
            frame = keyed(frame)
        self._query = (
            frame.writeStream.foreachBatch(self._run_batch)
            .option("checkpointLocation", str(folders.checkpoint))
            .start()
        )

    @property
    def _blueprint_file(self) -> Path:
        return self.blueprint.folders.checkpoint.with_name("blueprint")

    def wait_until_ready(self) -> None:
        """Wait until batches are planned; raises what went wrong before."""
        deadline = time.monotonic() + _START_SECONDS
        while not self.blueprint.folders.ready.exists():
            self.check()
            if time.monotonic() > deadline:
                raise JobFailedError(
                    f"job {self.blueprint.job!r} did not start within {_START_SECONDS:.0f} s"
                )
            time.sleep(0.002)
        self.ready_at = time.monotonic()

    def _run_batch(self, frame: Any, spark_batch: int) -> None:
        started = time.monotonic()
        try:
            summary = TaskSummary(spark_batch)
            if self._native is not None:
                self._native.run(frame, self.last, summary)
            else:
                for _, kind, data in frame.collect():
                    assert kind == SUMMARY, "only summaries leave a batch"
                    summary.absorb(unpack(bytes(data))[0])
            if summary.failure is not None:
                raise summary.failure
            # Spark counts anew when its checkpoint is lost; the ledger goes on counting.
            self._commit(summary.end["batch"] - 1, summary, started)
        except Exception as error:
            self._failure = error
            raise
        self.ended_at = time.monotonic()
        with self.changed:
            self.report.add(self._names, self._kinds, summary, self.ended_at - started)
            self.changed.notify_all()

    def _commit(self, batch: int, summary: TaskSummary, started: float) -> None:
        if self._agreed is not None:
            self._commit_as_agreed(self._agreed, batch, summary, started)
            return
        before = self.last
        sinks = self.blueprint.sinks
        publish_first = self.blueprint.guarantee == "at-least-once"
        if publish_first:
            publish(self.blueprint, batch, summary.receipts)
            summary.receipts = {}
        transactional = {name: made for name, made in summary.receipts.items() if sinks[name].transactional}
        entry = self._entry(batch, summary, transactional)
        if not self._ledger.commit(entry):
            # The batch happened before a crash: what it did then stands, and is made visible now.
            found = self._ledger.read(batch)
            if found is None or found.end != entry.end:
                raise JobFailedError(
                    f"batch {batch} of job {self.blueprint.job!r} was committed by another run meanwhile"
                )
            entry = found
            summary.receipts = dict(entry.receipts)
        publish(self.blueprint, batch, summary.receipts)
        self.last = entry
        self._tidy(before, entry)
        if self.blueprint.lasting:
            acknowledge(self.blueprint, entry.end)

    def _commit_as_agreed(
        self, agreed: AgreedOutput, batch: int, summary: TaskSummary, started: float
    ) -> None:
        """Commit a batch of one of several replicas: its state is its own, its output is what counts.

        The output comes before the entry: it is agreed on already, and nobody has to wait for it.
        """
        if batch < 0:
            return  # Spark begins with a batch of nothing when there is nothing to read yet.
        before = self.last
        entry = self._entry(batch, summary, {})
        found = self._ledger.read(batch)
        if found is None:
            offer = Offer(
                batch,
                summary.end,
                summary.receipts,
                summary.digests,
                entry.digests,
                time.monotonic() - started,
            )
            counted = agreed.settle(offer)
            entry.receipts = {name: list(made) for name, made in counted.receipts.items()}
            self._see_whether_whole(entry, counted.state)
            self._ledger.commit(entry)
        else:
            entry = found  # Spark has forgotten a batch that has happened.
        self.last = entry
        self._tidy(before, entry)

    def _see_whether_whole(self, entry: Entry, state: Mapping[str, int]) -> None:
        """Let a replica that came in without state take part in full once it has all that is needed.

        What its state came from is not what that of the others came from: it counts on from their digests.
        """
        folders = self.blueprint.folders
        if folders.unwhole.exists():
            joined = Times.of(json.loads(folders.unwhole.read_text()))
            if is_whole(self.blueprint, joined, Times.of(entry.times)):
                folders.unwhole.rename(folders.uncounted)
        elif folders.uncounted.exists() and state:
            entry.digests = dict(state)
            folders.uncounted.unlink()

    def _entry(self, batch: int, summary: TaskSummary, receipts: dict[str, list[Any]]) -> Entry:
        before = self.last
        return Entry(
            batch=batch,
            end=summary.end,
            receipts=receipts,
            feedback=summary.feedback,
            state={**(before.state if before else {}), **summary.state},
            buckets=self.blueprint.buckets,
            times=advance(self.blueprint, summary),
            digests=self._state_digests(summary),
        )

    def _state_digests(self, summary: TaskSummary) -> dict[str, int]:
        """Return the digests of all changes of state so far, where replicas compare them."""
        folders = self.blueprint.folders
        if self._agreed is None or folders.unwhole.exists() or folders.uncounted.exists():
            return {}
        return chained(self.last.digests if self.last else {}, summary.state_digests)

    def _tidy(self, before: Entry | None, entry: Entry) -> None:
        if before is None or before.batch != entry.batch - 1:
            return
        folders = self.blueprint.folders
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
        if self.last is not None and self.last.feedback:
            return False
        if not self._positions.exhausted(self._reached()):
            return False
        if self.last is None or not self._positions.bounded:
            return True
        return not due(self.blueprint, Times.of(self.last.times), time.time(), at_end=True)

    @property
    def lag(self) -> int | None:
        """How many records wait in the sources, as far as they can tell."""
        return self._positions.lag(self._reached())

    def _reached(self) -> dict[str, Any]:
        return self.last.end["sources"] if self.last is not None else {}

    def check(self) -> None:
        """Raise what ended the query, if anything has."""
        if self._failure is not None:
            raise self._named(self._failure)
        try:
            if self._query.isActive:
                return
        except Exception as lost:
            raise JobFailedError(
                f"job {self.blueprint.job!r} failed: Spark's Java process does not answer any more"
            ) from lost
        if self._failure is not None:  # It failed between the two questions.
            raise self._named(self._failure)
        planning = self.blueprint.folders.failure
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
        elif "Traceback (most recent call last)" in text:
            reason = _last_words(text)
        return JobFailedError(f"job {self.blueprint.job!r} failed: {reason}", text)

    @property
    def active(self) -> bool:
        """Whether the query runs."""
        try:
            return self._query is not None and self._failure is None and bool(self._query.isActive)
        except Exception:  # Java has died.
            return False

    def stop(self, *, let_out: bool = False) -> None:
        """Let the batch that runs end, start no other, and stop.

        ``let_out`` reads nothing more either, and lets records that are on their way out before.
        """
        folders = self.blueprint.folders
        if self._query is None:
            return
        staged = folders.stop_request.with_suffix(".new")
        deadline = time.monotonic() + _STOP_SECONDS
        try:
            staged.write_text(LET_OUT if let_out else "")
            staged.replace(folders.stop_request)
        except FileNotFoundError:
            deadline = 0.0  # The folder was taken over: no batch of this query can happen any more.
        with suppress(Exception):  # Java may have died; then there is nothing to stop.
            while self._query.isActive and not folders.stop_answer.exists() and time.monotonic() < deadline:
                if let_out:
                    deadline = max(deadline, self.ended_at + _STOP_SECONDS)
                time.sleep(0.002)
            self._query.stop()
        for leftover in (folders.stop_request, folders.stop_answer, folders.ready, self._blueprint_file):
            leftover.unlink(missing_ok=True)


def _last_words(text: str) -> str:
    """Return what a traceback ends with.

    >>> _last_words('From Python:\\nTraceback (most recent call last):\\n  File "x"\\nKeyError: 1\\n\\nJava')
    'KeyError: 1'
    """
    after = text.rpartition("Traceback (most recent call last)")[2].splitlines()[1:]
    return next((line for line in after if line and not line.startswith(" ")), text.splitlines()[0])


def _behind_shuffle(buckets: int, packed: bytes, frame: Any) -> Any:
    frame = frame.repartitionById(buckets, frame["bucket"])
    return frame.mapInArrow(_keyed_half(packed), SCHEMA)


def _keyed_half(packed: bytes) -> Any:
    def run(batches: Any) -> Any:
        try:
            program = program_of(packed)
        except PenstockError as error:
            return to_batches([failure_row(-1, error)])
        return to_batches(run_keyed(program, from_batches(batches)))

    return run
