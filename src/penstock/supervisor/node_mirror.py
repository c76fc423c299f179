"""A supervisor's mirror of the store, limited to the jobs of its node."""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.cluster.node_documents import NodeJobs
from penstock.coord import store_paths
from penstock.coord.coordination_store import Store
from penstock.coord.mirrored_documents import Documents
from penstock.coord.store_mirror import StoreMirror
from penstock.replicas.replica_id import ReplicaId

_EVERYTHING = (store_paths.ASSIGNMENTS, store_paths.WORKERS, store_paths.FAILURES)


class NodeMirror:
    """A copy of the assignments, workers and failures of a node's jobs.

    These are the jobs that the leader lists for the node, and those with a process on it: a job without an
    entry in the list may still be assigned. A leader of an earlier version keeps no lists, and the list of a
    later version may be unreadable; then the assignments of all nodes are copied.
    """

    def __init__(self, store: Store, node: str, wake: Callable[[], None]) -> None:
        self._listed = f"{store_paths.NODE_JOBS}/{node}"
        self._base = {store_paths.EPOCH: 0, self._listed: 0}
        self._mirror = StoreMirror(store, self._base, wake, depths=self._base)
        self._everything = False
        self._jobs: frozenset[str] = frozenset()
        """The names, as in paths, of the jobs and replicas that are followed."""
        self.documents = Documents(self._mirror)

    def refresh(self, running: Collection[ReplicaId]) -> None:
        """Read what has changed, given the replicas that have a process here. Raises DisconnectedError."""
        self._mirror.refresh()
        epoch = self.documents.epoch()
        listed = self.documents.one(NodeJobs, self._listed)
        everything = epoch is None or not epoch.lists_jobs or bool(self.documents.fault(self._listed))
        jobs = frozenset((*(listed.jobs if listed is not None else ()), *map(str, running)))
        if everything == self._everything and (everything or jobs == self._jobs):
            return
        depths = {**self._base, **(_roots_of_all() if everything else _roots_of(jobs))}
        # Until the new roots are read, their jobs count as unknown.
        self._jobs = self._jobs & jobs if not (everything or self._everything) else frozenset()
        self._everything = False
        self._mirror.follow(depths, depths)
        self._mirror.refresh()
        self._everything, self._jobs = everything, jobs

    def knows(self, replica: ReplicaId) -> bool:
        """Return whether a replica's documents were read: before that, nothing is known to be missing."""
        return self._everything or str(replica) in self._jobs


def _roots_of_all() -> dict[str, int]:
    return {root: 2 if root == store_paths.WORKERS else 1 for root in _EVERYTHING}


def _roots_of(jobs: Collection[str]) -> dict[str, int]:
    return {f"{root}/{job}": int(root == store_paths.WORKERS) for root in _EVERYTHING for job in jobs}
