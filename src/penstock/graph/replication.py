"""What a job says of its replicas, as far as it makes sense: validation reports the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from penstock.graph.job import Job


class Replication(NamedTuple):
    """What a job says of its replicas."""

    k: int
    warm: bool
    """Whether another one waits."""
    held: bool
    """Whether backups hold their output."""
    next_window: bool
    """Whether a new one comes in without state."""

    @property
    def any(self) -> bool:
        """Whether there is more than one, be it one that waits."""
        return self.k > 0 or self.warm


def replication_of(job: Job) -> Replication:
    """Read what a job says, whatever it is.

    >>> from penstock.graph.job import Job
    >>> replication_of(Job("count", k=1)).any, replication_of(Job("count", k="many")).any
    (True, False)
    """
    k: Any = job.k
    return Replication(
        k if isinstance(k, int) and not isinstance(k, bool) and k > 0 else 0,
        _is(job.standby, "warm"),
        _is(job.replication, "standby"),
        _is(job.recovery, "next-window"),
    )


def _is(given: Any, word: str) -> bool:
    return isinstance(given, str) and given == word
