"""A replica of a job, as its engine knows it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ReplicaSpec:
    """One of the replicas of a job. All of them have the same agreement and different names."""

    name: str
    number: int
    agreement: str
    """The folder of the agreement, which all replicas share."""
    generation: int = 1
    """Of the code that it runs."""
    holds: bool = False
    """Whether it is one of a group in which only the primary puts its output where others see it, as long as
    it does so in time."""
    scratch: str = ""
    """A folder of this node alone, for output that is held."""
    may_differ_until: int = -1
    """The last batch in which it may differ from what counts: nobody has the state that goes with that."""

    @property
    def folder(self) -> Path:
        """The folder of the agreement."""
        return Path(self.agreement)
