"""The runtime protocol: what the engine needs from the system that runs its batches.

Jobs run on Spark. Tests may run them in their own process instead (:mod:`penstock.testing`); planning,
computation, commits and stopping of batches are the same for both.
"""

from __future__ import annotations

import pickle
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from math import inf
from typing import Protocol

from penstock.engine.blueprint import Blueprint
from penstock.engine.driver.batch_committer import BatchCommitter
from penstock.engine.driver.batch_planner import DRAIN_LOOPS
from penstock.engine.storage.ledger import LedgerEntry
from penstock.errors import JobFailedError, PenstockError
from penstock.graph.job import Job

_STOP_SECONDS = 60.0
_START_SECONDS = 60.0
_END_SECONDS = 10.0
"""How long a query that has failed may take to end."""
_LOOK = 0.002


class Query(ABC):
    """The running batches of one job. A query that replaces another (``before``) continues its report."""

    def __init__(self, blueprint: Blueprint, before: Query | None = None) -> None:
        self.blueprint = blueprint
        self.batches: BatchCommitter = BatchCommitter(blueprint, before.batches if before else None)
        """The committer of the batches."""
        self.ready_at = 0.0
        self._failure: Exception | None = None

    def start(self, last: LedgerEntry | None) -> None:
        """Start running batches in another thread, after the last committed batch."""
        folders = self.blueprint.folders
        for leftover in (folders.stop_request, folders.stop_answer, folders.failure, folders.ready):
            leftover.unlink(missing_ok=True)
        self.batches.begin(last)
        self._launch()

    def wait_until_ready(self) -> None:
        """Wait until batches are planned; raises errors of the start."""
        deadline = time.monotonic() + _START_SECONDS
        while not self.blueprint.folders.ready.exists():
            self.check()
            if time.monotonic() > deadline:
                raise JobFailedError(
                    f"job {self.blueprint.job!r} did not start within {_START_SECONDS:.0f} s"
                )
            time.sleep(_LOOK)
        self.ready_at = time.monotonic()

    @property
    def active(self) -> bool:
        """Whether the query is running."""
        try:
            return self._failure is None and self._is_alive()
        except Exception:  # The process that runs it has died.
            return False

    def check(self) -> None:
        """Raise the error that ended the query, if any."""
        if self._failure is not None:
            raise self._named(self._failure)
        try:
            if self._is_alive():
                return
        except Exception as lost:
            raise self._lost() from lost
        if self._failure is not None:  # It failed between the two checks.
            raise self._named(self._failure)
        planning = self.blueprint.folders.failure
        if planning.exists():
            raise pickle.loads(planning.read_bytes())  # noqa: S301 - written by our own planner
        raise self._named(self._end_reason() or JobFailedError("the query has stopped"))

    def stop(self, *, drain_loops: bool = False) -> Exception | None:
        """Finish the current batch and stop. Return the error of that batch, if any.

        ``drain_loops`` also stops reading, but first runs batches until no record is left in a loop. A batch
        that takes longer than a minute is cancelled and repeated later; with guarantee "at-most-once" it
        would be lost, so there is no time limit.
        """
        folders = self.blueprint.folders
        staged = folders.stop_request.with_suffix(".new")
        patience = inf if self.blueprint.guarantee == "at-most-once" else _STOP_SECONDS
        deadline = time.monotonic() + patience
        failure = None
        try:
            staged.write_text(DRAIN_LOOPS if drain_loops else "")
            staged.replace(folders.stop_request)
        except FileNotFoundError:
            deadline = 0.0  # The folder was taken over: this query can commit nothing more.
        with suppress(Exception):  # Its process may have died; then there is nothing to stop.
            while self._is_alive() and not folders.stop_answer.exists() and time.monotonic() < deadline:
                if drain_loops:
                    deadline = max(deadline, self.batches.ended_at + _STOP_SECONDS)
                time.sleep(_LOOK)
            failure = self._failure  # Read before a cancelled batch adds its error.
            self._end()
        self.batches.end()
        for leftover in (folders.stop_request, folders.stop_answer, folders.ready):
            leftover.unlink(missing_ok=True)
        self._clean_up()
        return None if failure is None else self._named(failure)

    def abandon(self) -> None:
        """End a failed query, so that another one can replace it."""
        deadline = time.monotonic() + _END_SECONDS
        with suppress(Exception):  # It may raise its failure again here.
            while self._is_alive() and time.monotonic() < deadline:
                time.sleep(_LOOK)  # It ends by itself; to stop it meanwhile would hide its failure.
            self._end()
        self._clean_up()

    @abstractmethod
    def _launch(self) -> None:
        """Start running batches."""

    @abstractmethod
    def _is_alive(self) -> bool:
        """Return whether batches run or would run; raises if the process that runs them has died."""

    @abstractmethod
    def _end(self) -> None:
        """End the process that runs the batches at once."""

    def _end_reason(self) -> Exception | None:
        """Return the error that ended a query, if known."""
        return None

    def _clean_up(self) -> None:  # noqa: B027 - optional to override
        """Remove temporary files of the query."""

    def _lost(self) -> JobFailedError:
        """Return the error to raise if the process that runs the batches has died."""
        return JobFailedError(
            f"job {self.blueprint.job!r} failed: the process that runs its batches has died"
        )

    def _named(self, error: Exception) -> Exception:
        """Return an error as an error of Penstock with the name of the job."""
        if isinstance(error, PenstockError | BrokenPipeError):
            return error
        text = str(error).strip() or type(error).__name__
        return JobFailedError(f"job {self.blueprint.job!r} failed: {text.splitlines()[0]}", text)


class Runtime(Protocol):
    """A system that runs queries."""

    @property
    def parallelism(self) -> int:
        """The number of tasks that run at once."""

    def query(self, blueprint: Blueprint, before: Query | None = None) -> Query:
        """Return a query that is ready to start; raises errors of the job."""

    def obstacles(self, before: Job, after: Job) -> list[str]:
        """Return why a job cannot be changed into another one without a new runtime."""
