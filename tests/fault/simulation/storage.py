"""The storage that all nodes share: of each job, who has its folder and which batches are in its ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from penstock.errors import PenstockError
from simulation.world import InvariantError

T = TypeVar("T")

Claim = tuple[int, int]
"""Revision and attempt."""


class TakenError(PenstockError):
    """A later worker has the folder."""


class InUseError(PenstockError):
    """A worker of the same number has been started before."""


@dataclass
class JobFolder:
    """The twin of :mod:`penstock.engine.takeover`: whoever does not have the folder commits nothing."""

    job: str
    holder: Claim = (0, 0)
    ledger: list[Claim] = field(default_factory=list)
    """Who committed each batch, from the first."""
    takeovers: list[tuple[int, bool]] = field(default_factory=list)
    """The revisions that had it, in their order, and whether they began from scratch."""

    def take_over(self, claim: Claim, *, forget: int) -> int:
        """Have the folder from now on, and return the number of the next batch."""
        if self.holder > claim:
            raise TakenError(f"{self.job}: {self.holder} has the folder, {claim} comes too late")
        if self.holder == claim:
            raise InUseError(f"{self.job}: {claim} has been started before")
        empties = self.holder[0] <= forget
        if empties:
            self.ledger.clear()
        self.takeovers.append((claim[0], empties))
        self.holder = claim
        return len(self.ledger) + 1

    def commit(self, claim: Claim, batch: int) -> None:
        """Put a batch into the ledger."""
        if self.holder != claim:
            raise TakenError(f"{self.job}: {self.holder} has the folder, not {claim}")
        if batch != len(self.ledger) + 1:
            raise InvariantError(
                f"{self.job}: {claim} commits batch {batch} after {len(self.ledger)}, by {self.ledger[-3:]}"
            )
        self.ledger.append(claim)


@dataclass
class Storage(Generic[T]):
    """What machines share: all job folders, the applications that executors can reach, what ran where."""

    applications: dict[str, T] = field(default_factory=dict)
    started: dict[tuple[str, str, int, int], str] = field(default_factory=dict)
    """Where each process was started, by job, role, revision and attempt."""
    folders: dict[str, JobFolder] = field(default_factory=dict)

    def of(self, job: str) -> JobFolder:
        """Return the folder of a job."""
        return self.folders.setdefault(job, JobFolder(job))
