"""The runtime protocol: what the engine needs from the system that runs its batches.

Spark is where jobs run. Tests may run them in their own process instead (:mod:`penstock.testing`); how
batches are planned, computed, committed and stopped is the same for both.
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
_LOOK = 0.002


class Query(ABC):
    """The running batches of one job. One that follows another of the same job goes on with its report."""

    def __init__(self, blueprint: Blueprint, before: Query | None = None) -> None:
        self.blueprint = blueprint
        self.batches: BatchCommitter = BatchCommitter(blueprint, before.batches if before else None)
        """The batches that have happened."""
        self.ready_at = 0.0
        self._failure: Exception | None = None

    def start(self, last: LedgerEntry | None) -> None:
        """Start after the last batch that has happened; batches run in a thread of their own from now on."""
        folders = self.blueprint.folders
        for leftover in (folders.stop_request, folders.stop_answer, folders.failure, folders.ready):
            leftover.unlink(missing_ok=True)
        self.batches.begin(last)
        self._launch()

    def wait_until_ready(self) -> None:
        """Wait until batches are planned; raises what went wrong before."""
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
        """Whether the query runs."""
        try:
            return self._failure is None and self._is_alive()
        except Exception:  # What runs it has died.
            return False

    def check(self) -> None:
        """Raise what ended the query, if anything has."""
        if self._failure is not None:
            raise self._named(self._failure)
        try:
            if self._is_alive():
                return
        except Exception as lost:
            raise self._lost() from lost
        if self._failure is not None:  # It failed between the two questions.
            raise self._named(self._failure)
        planning = self.blueprint.folders.failure
        if planning.exists():
            raise pickle.loads(planning.read_bytes())  # noqa: S301 - written by our own planner
        raise self._named(self._end_reason() or JobFailedError("the query has stopped"))

    def stop(self, *, drain_loops: bool = False) -> Exception | None:
        """Let the batch that runs end, start no other, and stop. Return what that batch failed with, if so.

        ``drain_loops`` reads nothing more either, and lets records that are on their way out before. A batch
        that takes longer than a minute is cut off and repeated later; at most once it would be lost, so
        there is no limit to the wait.
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
            deadline = 0.0  # The folder was taken over: no batch of this query can happen any more.
        with suppress(Exception):  # What runs it may have died; then there is nothing to stop.
            while self._is_alive() and not folders.stop_answer.exists() and time.monotonic() < deadline:
                if drain_loops:
                    deadline = max(deadline, self.batches.ended_at + _STOP_SECONDS)
                time.sleep(_LOOK)
            failure = self._failure  # Not what a batch says that is cut off.
            self._end()
        self.batches.end()
        for leftover in (folders.stop_request, folders.stop_answer, folders.ready):
            leftover.unlink(missing_ok=True)
        self._clean_up()
        return None if failure is None else self._named(failure)

    def abandon(self) -> None:
        """Make sure that a query which has failed has ended, so that another one can take its place."""
        with suppress(Exception):  # It has failed, and this is where it may say so once more.
            self._end()
        self._clean_up()

    @abstractmethod
    def _launch(self) -> None:
        """Begin to run batches."""

    @abstractmethod
    def _is_alive(self) -> bool:
        """Whether batches run or would run; raises when what runs them has died."""

    @abstractmethod
    def _end(self) -> None:
        """End what runs the batches, now."""

    def _end_reason(self) -> Exception | None:
        """Return what has ended a query that has ended by itself, where that is known."""
        return None

    def _clean_up(self) -> None:  # noqa: B027 - nothing, where nothing was made
        """Remove what the query has made for itself."""

    def _lost(self) -> JobFailedError:
        """Return what to say when what runs the batches has died."""
        return JobFailedError(
            f"job {self.blueprint.job!r} failed: the process that runs its batches has died"
        )

    def _named(self, error: Exception) -> Exception:
        """Return an error as one of Penstock's own, with the name of the job."""
        if isinstance(error, PenstockError | BrokenPipeError):
            return error
        text = str(error).strip() or type(error).__name__
        return JobFailedError(f"job {self.blueprint.job!r} failed: {text.splitlines()[0]}", text)


class Runtime(Protocol):
    """Something that runs queries."""

    @property
    def parallelism(self) -> int:
        """How many buckets a job has that says nothing of it."""

    def query(self, blueprint: Blueprint, before: Query | None = None) -> Query:
        """Return a query that is ready to start; raises what is wrong with the job."""

    def obstacles(self, before: Job, after: Job) -> list[str]:
        """Return why a job cannot become another one without a new runtime."""
