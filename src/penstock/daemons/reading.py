"""Reads the documents of a mirrored tree. One that cannot be read is left out and told of, not fatal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from penstock.cluster.codec import DocumentError, decode
from penstock.cluster.documents import (
    Alarm,
    Assignment,
    Epoch,
    Failures,
    JobSpec,
    JobStatus,
    Kept,
    Location,
    MasterInfo,
    NodeInfo,
    NodeReport,
    Result,
    WorkerInfo,
)
from penstock.cluster.view import Actual
from penstock.coord import paths
from penstock.coord.mirror import Mirror
from penstock.logs import get_logger

T = TypeVar("T")

_log = get_logger(__name__)

MASTER_ROOTS = (
    paths.MASTERS,
    paths.EPOCH,
    paths.NODES,
    paths.REPORTS,
    paths.JOBS,
    paths.ASSIGNMENTS,
    paths.STATUS,
    paths.WORKERS,
    paths.RESULTS,
    paths.FAILURES,
    paths.ALARMS,
    paths.LOCATIONS,
    paths.KEPT,
)

SUPERVISOR_ROOTS = (paths.ASSIGNMENTS, paths.WORKERS, paths.FAILURES)


class Documents:
    """A mirrored tree as documents. What did not change is not decoded again."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._decoded: dict[str, tuple[bytes, object]] = {}
        self._below: dict[str, set[str]] = {}
        """What was right below each path when it was last looked at: what is gone is forgotten."""

    def one(self, kind: type[T], path: str) -> T | None:
        """Return the document at a path, None when there is none that can be read."""
        node = self._mirror.get(path)
        if node is None:
            self._decoded.pop(path, None)
            return None
        known = self._decoded.get(path)
        if known is None or known[0] != node.data:
            try:
                known = (node.data, decode(kind, node.data))
            except DocumentError as error:
                _log.error("document cannot be read", path=path, reason=str(error))
                known = (node.data, None)
            self._decoded[path] = known
        found = known[1]
        return found if isinstance(found, kind) else None

    def all(self, kind: type[T], root: str) -> dict[str, T]:
        """Return all documents right below a path, by name."""
        names = self._mirror.children(root)
        for path in self._below.get(root, set()) - {f"{root}/{name}" for name in names}:
            self._decoded.pop(path, None)
        self._below[root] = {f"{root}/{name}" for name in names}
        found = {}
        for name in names:
            document = self.one(kind, f"{root}/{name}")
            if document is not None:
                found[name] = document
        return found

    def workers(self) -> dict[str, tuple[WorkerInfo, ...]]:
        """Return the workers that hold their place, by job."""
        by_job = {
            job: tuple(self.all(WorkerInfo, f"{paths.WORKERS}/{job}").values())
            for job in self._mirror.children(paths.WORKERS)
        }
        return {job: workers for job, workers in by_job.items() if workers}

    def assignments(self) -> dict[str, Assignment]:
        """Return all assignments by job."""
        return self.all(Assignment, paths.ASSIGNMENTS)

    def failures(self) -> dict[str, Failures]:
        """Return the failures of workers by job."""
        return self.all(Failures, paths.FAILURES)

    def jobs(self) -> dict[str, JobSpec]:
        """Return what the users want."""
        return self.all(JobSpec, paths.JOBS)

    def masters(self) -> dict[str, MasterInfo]:
        """Return the masters that are up."""
        return self.all(MasterInfo, paths.MASTERS)

    def epoch(self) -> Epoch | None:
        """Return the last epoch that was begun."""
        return self.one(Epoch, paths.EPOCH)

    def actual(self, absent: Callable[[Actual], dict[str, float]] | None = None) -> Actual:
        """Return what is the case; ``absent`` adds since when nodes have been missed."""
        seen = Actual(
            nodes=self.all(NodeInfo, paths.NODES),
            reports=self.all(NodeReport, paths.REPORTS),
            assignments=self.assignments(),
            workers=self.workers(),
            results=self.all(Result, paths.RESULTS),
            failures=self.failures(),
            statuses=self.all(JobStatus, paths.STATUS),
            alarms=self.all(Alarm, paths.ALARMS),
            locations=self.all(Location, paths.LOCATIONS),
            kept=self.all(Kept, paths.KEPT),
        )
        if absent is None:
            return seen
        return replace(seen, absent_since=absent(seen))

    def version(self, path: str) -> int | None:
        """Return the version that a node had when it was read; None when it was not there."""
        node = self._mirror.get(path)
        return node.version if node is not None else None
