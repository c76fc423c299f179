"""The storage of nodes: of each job, who has its folder and which batches are in its ledger.

Most jobs have one folder, which all nodes share. A job that keeps its data with its node has one on each node
that it has run on, and copies of them on others.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """The twin of :mod:`penstock.engine.storage.job_folder`: who does not have it commits nothing."""

    job: str
    holder: Claim = (0, 0)
    ledger: list[Claim] = field(default_factory=list)
    """Who committed each batch, from the first."""
    takeovers: list[tuple[int, bool]] = field(default_factory=list)
    """The revisions that had it, in their order, and whether they began from scratch."""
    unused: set[int] = field(default_factory=set)
    """Those that found a folder in which nobody had been before."""

    def take_over(self, claim: Claim, *, forget: int) -> int:
        """Have the folder from now on, and return the number of the next batch."""
        if self.holder > claim:
            raise TakenError(f"{self.job}: {self.holder} has the folder, {claim} comes too late")
        if self.holder == claim:
            raise InUseError(f"{self.job}: {claim} has been started before")
        if self.holder == (0, 0):
            self.unused.add(claim[0])
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


@dataclass(frozen=True)
class Copy:
    """A snapshot of a folder, as a store has it."""

    number: int
    by: Claim
    """The worker that sent it."""
    holder: Claim
    """The worker that had the folder,"""
    ledger: tuple[Claim, ...]
    """and what was in it."""


@dataclass
class Storage(Generic[T]):
    """What machines share: all job folders, the applications that executors can reach, what ran where."""

    applications: dict[str, T] = field(default_factory=dict)
    started: dict[tuple[str, str, int, int], str] = field(default_factory=dict)
    """Where each process was started, by job, role, revision and attempt."""
    folders: dict[tuple[str, str], JobFolder] = field(default_factory=dict)
    """By job, and by node for those that keep their data with one."""
    restored: dict[tuple[str, str], int] = field(default_factory=dict)
    """By job and node: which loss of a node the folder there was restored after."""
    copies: dict[tuple[str, str], Copy] = field(default_factory=dict)
    """By job and store, the newest."""
    takeovers: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)
    unused: dict[str, set[int]] = field(default_factory=dict)
    """By job, the revisions that found a folder in which nobody had been before."""
    begun: set[tuple[str, int]] = field(default_factory=set)
    """The jobs and revisions that have begun to work on their data."""
    heads: dict[tuple[str, int], int] = field(default_factory=dict)
    """By job and lineage, how many batches its replicas have agreed on."""
    promised: dict[str, int] = field(default_factory=dict)
    """By job, how many batches its copy is said to have."""
    up: Callable[[str], bool] = lambda _: True
    """Whether a machine can be reached."""

    def of(self, job: str, node: str = "") -> JobFolder:
        """Return the folder of a job; that on a node, if its data is with it."""
        takeovers = self.takeovers.setdefault(job, [])
        unused = self.unused.setdefault(job, set())
        return self.folders.setdefault((job, node), JobFolder(job, takeovers=takeovers, unused=unused))

    def check_promise(self, folder: JobFolder) -> None:
        """See that a job that begins on a node has all that a copy of it was said to have."""
        promised = self.promised.get(folder.job, 0)
        if len(folder.ledger) < promised:
            has = f"{folder.holder} goes on with {len(folder.ledger)} batches"
            raise InvariantError(f"{folder.job}: {has}, and {promised} were kept")

    def keep(self, job: str, store: str, copy: Copy) -> None:
        """Have a store keep a copy. Raises PenstockError."""
        if not self.up(store):
            raise PenstockError(f"{store} does not answer")
        known = self.copies.get((job, store))
        if known is not None and known.by > copy.by:
            raise PenstockError(f"{copy.by} has been succeeded by {known.by}")
        self.copies[job, store] = copy

    def restore(self, job: str, node: str, store: str, revision: int) -> None:
        """Make the folder on a node of the newest copy, unless that has been done. Raises PenstockError."""
        if self.restored.get((job, node)) == revision:
            return
        copy = self.copies.get((job, store))
        if copy is None or not self.up(store):
            raise PenstockError(f"{store} does not answer, or has no copy")
        folder = self.of(job, node)
        folder.holder, folder.ledger = copy.holder, list(copy.ledger)
        self.restored[job, node] = revision

    def forget(self, job: str, store: str, by: Claim) -> None:
        """Have a store remove a copy, unless a later worker has sent it."""
        known = self.copies.get((job, store))
        if known is not None and known.by <= by and self.up(store):
            del self.copies[job, store]
