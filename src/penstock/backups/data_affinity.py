"""Decides where a job with node-kept data may run: on that node, or on one that restores the backup."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.cluster.assignment_documents import Assignment, BackupStatus, RestoreSource
from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.job_documents import JobSpec
from penstock.replicas.replica_id import ReplicaId


@dataclass(frozen=True)
class DataAffinity:
    """The constraints that the location of a job's data puts on its placement."""

    only: str = ""
    """The live node that has the data: the job can run only there."""
    prefer: str = ""
    """The node that was chosen beforehand as replacement for a lost one."""
    restore: RestoreSource | None = None
    """The backup that the worker restores when it runs on another node than its data."""
    waits: str = ""
    """Why the job cannot run anywhere at the moment; empty if it can."""


def affinity_of(spec: JobSpec, before: Assignment | None, actual: ClusterState) -> DataAffinity:
    """Return the constraints on a job's placement: none if all nodes share its data."""
    if spec.settings.data_location != "node":
        return DataAffinity()
    home = _home_of_data(spec, before, actual)
    if home.only and spec.settings.placement.nodes and home.only not in spec.settings.placement.nodes:
        allowed = ", ".join(spec.settings.placement.nodes)
        return DataAffinity(
            waits=f"its data is on {home.only}, but it may run only on {allowed}: allow that node"
        )
    return home


def _home_of_data(spec: JobSpec, before: Assignment | None, actual: ClusterState) -> DataAffinity:
    kept = actual.kept.get(spec.name)
    if kept is None or (spec.fresh and kept.revision <= spec.forget):
        # Its worker has not started yet, or its data is to be discarded.
        if before is None or before.node not in actual.nodes:
            return DataAffinity()
        return DataAffinity(only=before.node, restore=before.restore)
    if (
        before is not None
        and before.node in actual.nodes
        and before.node != kept.origin
        and before.restore is not None
        and not is_elsewhere(before, before.node, kept)
        and not works_on(kept, actual)
        and not is_copy_lost(before, kept, actual)
    ):
        # The worker may start there at any moment, so keep the assignment even if the lost node is back.
        return DataAffinity(only=before.node, restore=before.restore)
    if kept.origin in actual.nodes:
        # A worker that is still restoring a lost node's data has not reported the data as its own yet.
        restore = before.restore if before is not None and before.node == kept.origin else None
        return DataAffinity(only=kept.origin, restore=restore)
    if not kept.store:
        return DataAffinity(
            waits=f"its data is on {kept.origin}, which is lost, and no node has a complete backup"
        )
    if kept.store not in actual.nodes:
        return DataAffinity(
            waits=f"its data is on {kept.origin} and its backup on {kept.store}, and both nodes are lost"
        )
    location = actual.locations.get(spec.name)
    return DataAffinity(
        prefer=location.redeploy if location is not None else kept.store,
        restore=RestoreSource(
            kept.store, kept.store_url, kept.revision, location.rate if location is not None else 0.0
        ),
    )


def works_on(kept: BackupStatus, actual: ClusterState) -> bool:
    """Return whether a worker is running on the node with a job's data and uses that data."""
    return kept.origin in actual.nodes and any(
        worker.node == kept.origin and worker.revision == kept.revision and worker.phase == "running"
        for worker in actual.workers.get(ReplicaId(kept.job), ())
    )


def is_copy_lost(assignment: Assignment, kept: BackupStatus, actual: ClusterState) -> bool:
    """Return whether the backup to restore is on a lost node, while the node with the data is back."""
    restore = assignment.restore
    if restore is None or kept.origin not in actual.nodes or kept.origin == assignment.node:
        return False
    newest = kept.store if kept.store and kept.revision == restore.revision else restore.store
    return newest not in actual.nodes


def is_forgotten(assignment: Assignment, kept: BackupStatus) -> bool:
    """Return whether a worker discards such data because its job starts from scratch.

    >>> again = Assignment("count", 1, 5, 1, "", "", "n1", fresh=True, forget=3)
    >>> [is_forgotten(again, BackupStatus("count", "n1", revision, 1)) for revision in (3, 4)]
    [True, False]
    """
    last = assignment.revision - 1 if assignment.forget is None else assignment.forget
    return assignment.fresh and kept.revision <= last


def is_elsewhere(assignment: Assignment, node: str, kept: BackupStatus | None) -> bool:
    """Return whether another node has newer data than a worker on this node would continue from.

    >>> from dataclasses import replace
    >>> there = BackupStatus("count", "n2", 4, 1, store="n3")
    >>> here = Assignment("count", 1, 5, 1, "", "", "n1")
    >>> restored = [None, RestoreSource("n3", "", 3), RestoreSource("n3", "", 4)]
    >>> [is_elsewhere(replace(here, restore=given), "n1", there) for given in restored]
    [True, True, False]
    """
    if kept is None or kept.origin == node or is_forgotten(assignment, kept):
        return False
    return assignment.restore is None or assignment.restore.revision < kept.revision
