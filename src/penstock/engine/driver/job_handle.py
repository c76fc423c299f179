"""The handle of a running job: wait for it, inspect it, change it in place, stop it."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any

from penstock.engine.batch_report import Report
from penstock.engine.blueprint import Blueprint
from penstock.engine.driver.query_launch import (
    Reconfigured,
    Restarts,
    launch,
    prepare,
    replace_query,
    restart_query,
    resume_job,
)
from penstock.engine.driver.query_runtime import Query, Runtime
from penstock.engine.execution.blueprint_transfer import pack_blueprint
from penstock.errors import QueryInterruptedError, SettingError
from penstock.graph.error_policy import Retry
from penstock.graph.job import Job
from penstock.graph.job_copy import changed_copy
from penstock.graph.qos import QoS
from penstock.process_logs.process_log import get_logger

_log = get_logger(__name__)

_POLL_SECONDS = 0.25
"""Seconds between two checks of a wait for its deadline and for a query that has died."""

BlueprintFactory = Callable[[Job], Blueprint]
"""Creates the blueprint of a job in the handle's folder."""


class Handle:
    """A running job, as returned by :func:`penstock.start`. As a context manager it stops the job on exit.

    Batches run in other threads. Their errors are raised once, by :meth:`wait`, :meth:`check` or
    :meth:`stop`, in the calling thread.
    """

    def __init__(
        self,
        job: Job,
        blueprint_of: BlueprintFactory,
        runtime: Runtime,
        query: Query,
        on_progress: Callable[[Report], None] | None,
    ) -> None:
        self.kept = ExitStack()
        """Resources to release after the run, such as the lock of the folder."""
        self._job = job
        self._drawing = blueprint_of
        self._runtime = runtime
        self._query = query
        self._on_progress = on_progress
        self._started = time.monotonic()
        self._stopped = False
        self._raised = False
        self._restarts = Restarts()
        self._restart_at: float | None = None
        """When to restart a query that a transient failure has ended; None while it runs."""
        self._lock = threading.RLock()
        """Held while the query is replaced."""

    @classmethod
    def begin(
        cls,
        job: Job,
        blueprint_of: BlueprintFactory,
        open_runtime: Callable[[], Runtime],
        *,
        on_progress: Callable[[Report], None] | None = None,
    ) -> Handle:
        """Start a job in the folder of its blueprint, which this process must hold."""
        blueprint = blueprint_of(job)
        last = resume_job(job, blueprint)
        pack_blueprint(blueprint.for_workers())  # Report code that cannot be pickled before anything starts.
        runtime = open_runtime()
        restarts = Restarts()
        while True:
            try:
                query = prepare(runtime, job, blueprint, last)
                launch(job, query, last)
                break
            except QueryInterruptedError as error:
                pause = restarts.next_pause(0)
                if pause is None:
                    raise
                _log.warning("job is started again", job=job.name, pause=pause, reason=str(error))
                time.sleep(pause)
        handle = cls(job, blueprint_of, runtime, query, on_progress)
        atexit.register(handle._stop_at_exit)
        return handle

    @property
    def job(self) -> Job:
        """The job in its current version."""
        return self._job

    @property
    def report(self) -> Report:
        """The totals of the job since its start; reconfiguring does not reset them."""
        return self._query.batches.report

    @property
    def running(self) -> bool:
        """Whether batches run, or would run if there was input."""
        with self._lock:
            return not self._stopped and (self._restart_at is not None or self._query.active)

    def drained(self) -> bool:
        """Return whether all records that the sources have now are processed, including those in loops."""
        with self._lock:
            return self._query.batches.drained

    def check(self) -> None:
        """Raise the error that ended the job, if any.

        A transient failure does not end the job: its query is restarted in the same session after a pause, a
        limited number of times. With guarantee "at-most-once" it is never restarted, as no batch is repeated.
        """
        with self._lock:
            if self._stopped:
                return
            try:
                if self._restart_at is None:
                    self._query.check()
                elif time.monotonic() >= self._restart_at:
                    self._restart_at = None
                    self._query = restart_query(self._runtime, self._query, self._job)
            except QueryInterruptedError as error:
                pause = self._restarts.next_pause(self.report.batches)
                if self._job.guarantee == "at-most-once" or pause is None:
                    self._raised = True
                    raise
                _log.warning("query is started again", job=self._job.name, pause=pause, reason=str(error))
                self._restart_at = time.monotonic() + pause
            except Exception:
                self._raised = True
                raise

    def wait(self, until: str | float | None = "drained", timeout: float | None = None) -> bool:
        """Wait for a condition and return whether it was met before the timeout.

        ``until`` is ``"drained"``, a number of seconds from now, or None to wait until the job ends.
        """
        if not (until is None or until == "drained" or is_duration(until)):
            raise SettingError(f"until takes 'drained', a number of seconds or None, not {until!r}")
        if not (timeout is None or is_duration(timeout)):
            raise SettingError(f"timeout takes a number of seconds or None, not {timeout!r}")
        return self.follow(until, timeout)

    def follow(
        self,
        until: str | float | None,
        timeout: float | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> bool:
        """Wait as :meth:`wait` does, or until ``stop`` returns true."""
        began = time.monotonic()
        seen = 0
        while True:
            self.check()
            self._poll()
            waited = time.monotonic() - began
            if stop is not None and stop():
                return False
            if self._stopped:
                return until is None or (until == "drained" and self.drained())
            if until == "drained":
                # Nothing changes before the next batch has ended.
                if self.drained():
                    return True
            elif until is not None and waited >= float(until):
                return True
            if timeout is not None and waited >= timeout:
                return False
            with self._query.batches.changed:
                if self.report.batches == seen:
                    self._query.batches.changed.wait(_POLL_SECONDS)
                seen = self.report.batches

    def wait_for_batch(self, seconds: float) -> None:
        """Wait until a batch or the query ends, at most the given number of seconds."""
        with self._query.batches.changed:
            self._query.batches.changed.wait(seconds)

    @property
    def lag(self) -> int | None:
        """The current number of unread records in the sources; None if they cannot tell."""
        with self._lock:
            return self._query.batches.lag

    def _poll(self) -> None:
        report = self.report
        if not self._stopped:
            report.seconds = time.monotonic() - self._started
        if self._on_progress is not None:
            with self._lock:
                report.lag = self._query.batches.lag
            self._on_progress(report)

    def reconfigure(
        self,
        job: Job | None = None,
        *,
        parallelism: int | None = None,
        buckets: int | None = None,
        tasks: Mapping[str, Any] | None = None,
        qos: QoS | Mapping[str, Any] | None = None,
        vertex_qos: Mapping[str, QoS | Mapping[str, Any]] | None = None,
        on_error: str | Retry | None = None,
        max_iterations: int | None = None,
    ) -> Reconfigured:
        """Stop after the current batch and continue as a changed job, in the same session.

        Give either the whole new job, or the changes: the default parallelism, the number of buckets, the
        code of tasks by name, the quality of service of the job or, by name, of vertices, the error policy,
        the limit of loops. Each record is processed once, by the old code or by the new. An invalid change
        raises GraphError or IncompatibleJobError with all reasons before anything is stopped; if the new job
        does not start, the old one is restarted.
        """
        single: dict[str, Any] = {
            "parallelism": parallelism,
            "buckets": buckets,
            "tasks": tasks,
            "qos": qos,
            "vertex_qos": vertex_qos,
            "on_error": on_error,
            "max_iterations": max_iterations,
        }
        given = {name: value for name, value in single.items() if value is not None}
        if (job is None) == (not given):
            raise SettingError("reconfigure takes either a whole job or the changes: tasks=..., ...")
        with self._lock:
            if self._stopped:
                raise SettingError(f"job {self._job.name!r} is not running: start it with the new definition")
            self.check()
            new = job if job is not None else changed_copy(self._job, **given)
            replaced = replace_query(self._runtime, self._query, self._job, new, self._drawing)
            self._query, self._job = replaced.query, replaced.job
            if replaced.failure is not None:
                raise replaced.failure
            assert replaced.done is not None
            return replaced.done

    def stop(self, *, drain_loops: bool = False) -> None:
        """Finish the current batch and stop. Raises the error that ended the job or that occurs meanwhile.

        With ``drain_loops``, further batches run until no record is left in a loop.
        """
        with self._lock:
            if self._stopped:
                return
            failure: Exception | None = None
            try:
                self._query.check()
            except Exception as error:
                failure = error
            try:
                failure = self._query.stop(drain_loops=drain_loops) or failure
            finally:
                self._stopped = True
                atexit.unregister(self._stop_at_exit)
                self.kept.close()
            self.report.seconds = time.monotonic() - self._started
            if failure is not None and not self._raised:
                self._raised = True
                raise failure
            with suppress(Exception):
                self.report.lag = self._query.batches.lag
        with self._query.batches.changed:
            self._query.batches.changed.notify_all()

    def _stop_at_exit(self) -> None:
        """Stop at exit of the program; errors are suppressed, because no caller is left to handle them."""
        with suppress(Exception):
            self.stop()

    def __enter__(self) -> Handle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self._stop_at_exit()

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        return f"<handle of job {self._job.name!r}, {state}>"


def is_duration(given: Any) -> bool:
    """Return whether a value is a number of seconds."""
    return isinstance(given, int | float) and not isinstance(given, bool) and given >= 0
