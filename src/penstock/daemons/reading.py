"""Reads the documents of a mirrored tree. One that cannot be read is left out and told of, not fatal.

It is not absent, either: :meth:`Documents.unreadable` says which there are.
"""

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
    KnownNode,
    Location,
    MasterInfo,
    NodeInfo,
    NodeReport,
    Result,
    Revisions,
    Tombstone,
    WorkerInfo,
)
from penstock.cluster.members import job_of
from penstock.cluster.view import Actual
from penstock.coord import paths
from penstock.coord.mirror import Mirror
from penstock.logs import get_logger

T = TypeVar("T")

_log = get_logger(__name__)

MASTER_ROOTS = (
    paths.MASTERS,
    paths.EPOCH,
    paths.CLUSTER,
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
    paths.TOMBSTONES,
    paths.REVISIONS,
    paths.KNOWN,
)

_ABOUT_JOBS = (
    paths.JOBS,
    paths.ASSIGNMENTS,
    paths.STATUS,
    paths.WORKERS,
    paths.RESULTS,
    paths.FAILURES,
    paths.LOCATIONS,
    paths.KEPT,
)
"""Where names are those of jobs and their replicas."""

SUPERVISOR_ROOTS = (paths.ASSIGNMENTS, paths.WORKERS, paths.FAILURES)


class Documents:
    """A mirrored tree as documents. What did not change is not decoded again."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._decoded: dict[str, tuple[bytes, object]] = {}
        self._faults: dict[str, str] = {}
        """By path, why a document cannot be read."""
        self._below: dict[str, set[str]] = {}
        """What was right below each path when it was last looked at: what is gone is forgotten."""

    def one(self, kind: type[T], path: str) -> T | None:
        """Return the document at a path, None when there is none that can be read."""
        node = self._mirror.get(path)
        if node is None:
            self._decoded.pop(path, None)
            self._faults.pop(path, None)
            return None
        known = self._decoded.get(path)
        if known is None or known[0] != node.data:
            try:
                known = (node.data, decode(kind, node.data))
                self._faults.pop(path, None)
            except DocumentError as error:
                _log.error("document cannot be read", path=path, reason=str(error))
                known = (node.data, None)
                self._faults[path] = str(error)
            self._decoded[path] = known
        found = known[1]
        return found if isinstance(found, kind) else None

    def all(self, kind: type[T], root: str) -> dict[str, T]:
        """Return all documents right below a path, by name."""
        names = self._mirror.children(root)
        for path in self._below.get(root, set()) - {f"{root}/{name}" for name in names}:
            self._decoded.pop(path, None)
            self._faults.pop(path, None)
        self._below[root] = {f"{root}/{name}" for name in names}
        found = {}
        for name in names:
            document = self.one(kind, f"{root}/{name}")
            if document is not None:
                found[name] = document
        return found

    def unreadable(self, root: str) -> dict[str, str]:
        """Return why documents right below a path cannot be read, by name, of those that were looked at."""
        return {
            path.rpartition("/")[2]: f"{path}: {reason}"
            for path, reason in sorted(self._faults.copy().items())
            if path.rpartition("/")[0] == root
        }

    def unreadable_jobs(self) -> dict[str, str]:
        """Return the jobs of which some document that was looked at cannot be read, and why."""
        found: dict[str, str] = {}
        for path, reason in sorted(self._faults.copy().items()):
            for root in _ABOUT_JOBS:
                if path.startswith(f"{root}/"):
                    name = path[len(root) + 1 :].partition("/")[0]
                    found.setdefault(job_of(name), f"{path}: {reason}")
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
        self.jobs()  # So that it is known which of them cannot be read.
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
            tombstones=self.all(Tombstone, paths.TOMBSTONES),
            revisions=self.revisions(),
            known=self.all(KnownNode, paths.KNOWN),
        )
        seen = replace(
            seen,
            unreadable=self.unreadable_jobs(),
            unreadable_nodes=self.unreadable(paths.NODES),
            unreadable_alarms=frozenset(self.unreadable(paths.ALARMS)),
        )
        if absent is None:
            return seen
        return replace(seen, absent_since=absent(seen))

    def revisions(self) -> int:
        """Return the revision after which a job begins that is not known."""
        known = self.one(Revisions, paths.REVISIONS)
        return known.largest if known is not None else 0

    def names(self, root: str) -> list[str]:
        """Return the names right below a path, whether or not what is there can be read."""
        return self._mirror.children(root)

    def raw(self, path: str) -> bytes:
        """Return what a node held when it was read; nothing when it was not there."""
        node = self._mirror.get(path)
        return node.data if node is not None else b""

    def version(self, path: str) -> int | None:
        """Return the version that a node had when it was read; None when it was not there."""
        node = self._mirror.get(path)
        return node.version if node is not None else None
