"""A job as a Structured Streaming query: its start, its batches and its end."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

from penstock.engine.batch_report import TaskSummary
from penstock.engine.blueprint import Blueprint
from penstock.engine.driver.batch_result import merge_result
from penstock.engine.driver.query_runtime import Query
from penstock.engine.execution.batch_stages import failure_row, run_keyed_stage
from penstock.engine.execution.blueprint_transfer import load_program, pack_blueprint
from penstock.errors import InterruptedBatchError, JobFailedError, PenstockError, QueryInterruptedError
from penstock.spark.batch_rows import SCHEMA, collect_rows, from_batches, row_schema, to_batches
from penstock.spark.data_source import PenstockSource
from penstock.spark.native_batch import NativeStage
from penstock.spark.native_check import check_natives
from penstock.spark.spark_failures import JAVA_LOST, has_java_ended, message_of, text_of, transient_reason

_CONNECTION_ERRORS = (
    "Broken pipe",
    "Connection reset",
    "Connection reset by peer",
    "Stream closed",
    "null",
    "",
)
"""Spark's only message if a process that it calls does not respond."""


class SparkQuery(Query):
    """The running query of one job."""

    def __init__(self, session: Any, blueprint: Blueprint, before: Query | None = None) -> None:
        super().__init__(blueprint, before)
        self._session = session
        self._query: Any = None
        self._native: NativeStage | None = None
        self._packed: tuple[bytes, bytes] | None = None

    def pack(self) -> None:
        """Pickle the code for the workers; raises TaskError if that is not possible.

        Spark first checks the vertices that it runs itself; raises GraphError with their problems.
        """
        if self.blueprint.plan.native.order:
            check_natives(self._session, self.blueprint)
        self._packed = (
            pack_blueprint(self.blueprint.for_planner()),
            pack_blueprint(self.blueprint.for_workers()),
        )

    def _launch(self) -> None:
        try:
            self._begin()
        except PenstockError:
            raise
        except Exception as error:
            reason = transient_reason(error)
            if reason is None:
                raise
            raise self._interrupted(reason, error) from error

    def _begin(self) -> None:
        assert self._packed is not None, "pack() comes before start()"
        self._blueprint_file.write_bytes(pickle.dumps(self._packed))
        worker = self._packed[1]
        self._packed = None
        self._session.dataSource.register(PenstockSource)
        plan = self.blueprint.plan
        frame = self._session.readStream.format("penstock").option("blueprint", str(self._blueprint_file))
        frame = frame.option("rows", row_schema(plan.native)).load()
        keyed = partial(_behind_shuffle, self.blueprint.slots, worker) if plan.needs_exchange else None
        if plan.native.order:
            self._native = NativeStage(self.blueprint, worker, keyed)
        elif keyed is not None:
            frame = keyed(frame)
        self._query = (
            frame.writeStream.foreachBatch(self._run_batch)
            .option("checkpointLocation", str(self.blueprint.folders.checkpoint))
            .start()
        )

    @property
    def _blueprint_file(self) -> Path:
        return self.blueprint.folders.checkpoint.with_name("blueprint")

    def _run_batch(self, frame: Any, spark_batch: int) -> None:  # noqa: ARG002 - the ledger's own
        if self.blueprint.folders.stop_answer.exists():
            # Spark runs an empty batch if its first offset is also the last one. The stop would interrupt its
            # calls of Java, and Spark would overflow its stack while it reads the error.
            return
        try:
            self.batches.run_batch(lambda: self._attempt(frame))
        except Exception as error:
            self._failure = error
            raise

    def _attempt(self, frame: Any) -> TaskSummary:
        """Run a batch once on Spark, and return its result.

        Raises IncompleteBatchError if the result is truncated, or if Spark could not reach its own processes.
        """
        last = self.batches.last
        batch = last.batch + 1 if last is not None else 0
        try:
            if self._native is not None:
                return self._native.run(frame, last)
            return merge_result(self.blueprint, batch, collect_rows(frame, self.blueprint.job, batch))
        except PenstockError:
            raise
        except Exception as error:
            reason = transient_reason(error)
            if reason is None:
                raise
            raise InterruptedBatchError(self.blueprint.job, batch, reason) from error

    def _is_alive(self) -> bool:
        return self._query is not None and bool(self._query.isActive)

    def _end(self) -> None:
        if self._query is not None:
            self._query.stop()

    def _end_reason(self) -> Exception | None:
        error: Exception | None = self._query.exception()
        return error

    def _clean_up(self) -> None:
        self._blueprint_file.unlink(missing_ok=True)

    def _lost(self) -> JobFailedError:
        return JobFailedError(f"job {self.blueprint.job!r} failed: {JAVA_LOST}")

    def _named(self, error: Exception) -> Exception:
        text = message_of(error)
        if has_java_ended(error):
            return self._lost()
        if not isinstance(error, PenstockError):
            passing = transient_reason(error)
            if passing is not None:
                return self._interrupted(passing, error)
            reason = None
            if "Python worker exited unexpectedly" in text:
                reason = "a Python worker process died while it ran the job's code"
            elif "Traceback (most recent call last)" in text:
                reason = _last_line(text)
            elif text.partition("\n")[0] in _CONNECTION_ERRORS and self._planner_has_died():
                reason = (
                    "the process that plans its batches has died: it was killed, or out of memory. Start"
                    " the job again to continue where it stopped"
                )
            if reason is not None:
                return JobFailedError(f"job {self.blueprint.job!r} failed: {reason}", text)
        return super()._named(error)

    def _interrupted(self, reason: str, error: Exception) -> QueryInterruptedError:
        advice = "start the job again to continue where it stopped"
        if self.blueprint.guarantee == "at-most-once":
            advice = "at most once, a batch is not repeated: the next start skips its records"
        told = f"job {self.blueprint.job!r} failed: {reason}. The machine may be overloaded; {advice}"
        return QueryInterruptedError(told, text_of(error))

    def _planner_has_died(self) -> bool:
        """Return whether the planner's process, which Spark asks for offsets, has ended."""
        import psutil  # Workers import this module, too.

        try:
            planner = psutil.Process(int(self.blueprint.folders.ready.read_text()))
            return planner.status() == psutil.STATUS_ZOMBIE
        except (OSError, ValueError):  # There is none yet.
            return False
        except psutil.NoSuchProcess:
            return True


def _last_line(text: str) -> str:
    """Return the last line of a traceback: the error itself.

    >>> _last_line('From Python:\\nTraceback (most recent call last):\\n  File "x"\\nKeyError: 1\\n\\nJava')
    'KeyError: 1'
    """
    after = text.rpartition("Traceback (most recent call last)")[2].splitlines()[1:]
    return next((line for line in after if line and not line.startswith(" ")), text.splitlines()[0])


def _behind_shuffle(slots: int, packed: bytes, frame: Any) -> Any:
    frame = frame.repartitionById(slots, frame["slot"])
    return frame.mapInArrow(_keyed_half(packed), SCHEMA)


def _keyed_half(packed: bytes) -> Any:
    def run(batches: Any) -> Any:
        try:
            program = load_program(packed)
        except PenstockError as error:
            return to_batches([failure_row(-1, error)])
        return to_batches(run_keyed_stage(program, from_batches(batches)))

    return run
