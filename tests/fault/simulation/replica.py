"""A simulated replica among the others of its job: how far it is, and how it catches up.

That replicas agree is not what is looked for here. They agree by one number for each job.
"""

from __future__ import annotations

from typing import Any

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.worker_documents import ReplicaReport
from simulation.storage import Claim, JobFolder, Storage

_FAR = 10
"""Who is so many batches behind begins again from a snapshot of another replica."""
_AT_ONCE = 4
"""So many batches a step of a replica that is behind."""


class Place:
    """The place of one replica among the others."""

    def __init__(self, storage: Storage[Any], assignment: Assignment, claim: Claim) -> None:
        assert assignment.membership is not None
        self._heads = storage.heads
        self._key = (assignment.replica.job, assignment.membership.lineage)
        self._claim = claim
        self._since = -1
        self.joined = ReplicaReport()

    def join_replicas(self, folder: JobFolder) -> int:
        """Go on from what it has, or from a snapshot of another replica; return the next batch."""
        head = self._heads.get(self._key, 0)
        self._since = len(folder.ledger) - 1
        if head - len(folder.ledger) > _FAR:
            folder.ledger += [self._claim] * (head - len(folder.ledger) - _FAR // 2)
        self._stand(folder)
        return len(folder.ledger) + 1

    def batches(self, folder: JobFolder) -> int:
        """Return how many batches the next step has."""
        behind = self._heads.get(self._key, 0) - len(folder.ledger)
        return min(max(behind, 1), _AT_ONCE)

    def committed(self, folder: JobFolder) -> bool:
        """Note what was committed, and say whether its place among the others is another one by that."""
        before = self.joined
        self._stand(folder)
        return not self.joined.in_step or not before.in_step

    def _stand(self, folder: JobFolder) -> None:
        done = len(folder.ledger)
        head = self._heads[self._key] = max(self._heads.get(self._key, 0), done)
        self.joined = ReplicaReport(batch=done - 1, head=head - 1, since=self._since)
