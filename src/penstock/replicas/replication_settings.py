"""The replication settings of a job: allowed values, which go together, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

REPLICATION_CHOICES = {
    "recovery": ("snapshot", "next-window"),
    "replication": ("active", "standby"),
    "standby": ("", "warm"),
}
"""Allowed values of each replication setting except k. The first is the default."""


@dataclass(frozen=True)
class ReplicationSettings:
    """What is said of the replicas of a job."""

    k: int = 0
    recovery: str = "snapshot"
    replication: str = "active"
    standby: str = ""

    @property
    def has_replicas(self) -> bool:
        """Whether there is more than one, be it one that waits."""
        return self.k > 0 or self.warm

    @property
    def warm(self) -> bool:
        """Whether another one waits."""
        return self.standby == "warm"

    @property
    def held(self) -> bool:
        """Whether backups hold their output."""
        return self.replication == "standby"

    @property
    def next_window(self) -> bool:
        """Whether a new one comes in without state."""
        return self.recovery == "next-window"

    def contradiction(self) -> tuple[str, str] | None:
        """Return which setting goes against k, and why; None if none does.

        >>> ReplicationSettings(k=1).contradiction()
        >>> ReplicationSettings(replication="standby").contradiction()
        ('replication', "replication='standby' needs backups: set k to 1 or more, or use 'active'")
        """
        if self.k and self.warm:
            return "standby", "standby is for k=0: with k > 0 the other replicas run already"
        if not self.k and self.held:
            return "replication", "replication='standby' needs backups: set k to 1 or more, or use 'active'"
        return None


class ReplicatedJob(Protocol):
    """What a job says of its replicas; a ``penstock.Job``, which this module must not know."""

    k: int
    recovery: str
    replication: str
    standby: str


def replication_of(job: ReplicatedJob) -> ReplicationSettings:
    """Read what a job says, as far as it makes sense: validation reports the rest.

    >>> from penstock.graph.job import Job
    >>> replication_of(Job("count", k=1)).has_replicas, replication_of(Job("count", k="many")).has_replicas
    (True, False)
    """
    words = {name: getattr(job, name) for name in REPLICATION_CHOICES}
    sound = {name: word for name, word in words.items() if is_valid_choice(name, word)}
    return ReplicationSettings(job.k if is_valid_k(job.k) else 0, **sound)


def is_valid_k(k: Any) -> bool:
    """Whether a job can be k-safe with this k."""
    return isinstance(k, int) and not isinstance(k, bool) and k >= 0


def is_valid_choice(setting: str, value: Any) -> bool:
    """Whether a setting of replicas can have a value."""
    return isinstance(value, str) and value in REPLICATION_CHOICES[setting]
