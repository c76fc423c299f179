"""The progress of workers: from their documents in the store and from the more frequent reports of nodes.

A worker writes to the store at once what others act on, but its progress only now and then: a thousand jobs
that wrote it twice a second would keep the store and every master busy. Its supervisor reads its heartbeat
from a file anyway, and reports the progress of all workers of the node together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from penstock.cluster.node_documents import NodeReport
from penstock.cluster.worker_documents import Progress, ReplicaReport, WorkerFigures, WorkerInfo
from penstock.replicas.replica_id import ReplicaId

WorkerKey = tuple[ReplicaId, int, int]
"""Replica, revision and attempt."""

_SPARE = 100
"""How many workers that are gone are remembered before they are removed."""


def same_but_progress(one: WorkerInfo | None, other: WorkerInfo) -> bool:
    """Return whether two documents of a worker differ only in its progress.

    >>> info = WorkerInfo("count", 1, 1, "n1", 7, "running", 0.0)
    >>> same_but_progress(info, replace(info, progress=Progress(batches=5)))
    True
    >>> same_but_progress(info, replace(info, phase="stopped"))
    False
    """
    return one is not None and _without_progress(one) == _without_progress(other)


def _without_progress(info: WorkerInfo) -> tuple[WorkerInfo, object]:
    return replace(info, progress=Progress(), joined=None), _standing(info.joined)


def _standing(joined: ReplicaReport | None) -> object:
    """Return what a replica writes at once: whether it could continue alone, and that its result differed."""
    return (joined.in_step, joined.whole, joined.differed) if joined is not None else None


class ReportedProgress:
    """The last reported progress of each worker, kept until the worker is gone."""

    def __init__(self) -> None:
        self._figures: dict[WorkerKey, WorkerFigures] = {}
        self._reports: Mapping[str, NodeReport] = {}

    def update(
        self, reports: Mapping[str, NodeReport], workers: Mapping[ReplicaId, Collection[WorkerInfo]]
    ) -> None:
        """Read the reports that have changed."""
        before, self._reports = self._reports, reports
        if reports is before:
            return
        for node, report in reports.items():
            if before.get(node) is not report:
                for figures in report.workers:
                    if figures.progress is not None:
                        self._figures[figures.replica, figures.revision, figures.attempt] = figures
        if len(self._figures) > 2 * len(workers) + _SPARE:
            there = {_key(worker) for group in workers.values() for worker in group}
            self._figures = {key: figures for key, figures in self._figures.items() if key in there}

    def of(self, worker: WorkerInfo) -> Progress:
        """Return the newest progress of a worker, from its document or from the report of its node."""
        figures = self._newer(worker)
        return worker.progress if figures is None or figures.progress is None else figures.progress

    def added_to(self, worker: WorkerInfo) -> WorkerInfo:
        """Return the document of a worker with the progress that its node has reported, if that is newer.

        The replica's own document, which is written at once, decides whether it is in step.
        """
        figures = self._newer(worker)
        if figures is None or figures.progress is None:
            return worker
        joined = worker.joined
        if figures.joined is not None and _standing(figures.joined) == _standing(joined):
            joined = figures.joined
        return replace(worker, progress=figures.progress, joined=joined)

    def _newer(self, worker: WorkerInfo) -> WorkerFigures | None:
        figures = self._figures.get(_key(worker))
        if figures is None or figures.progress is None or figures.progress.at < worker.progress.at:
            return None
        return figures


def _key(worker: WorkerInfo) -> WorkerKey:
    return worker.replica, worker.revision, worker.attempt
