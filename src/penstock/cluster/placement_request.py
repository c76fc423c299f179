"""The request of a leader to place parts of a job on nodes, and the result of the placer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from penstock.cluster.assignment_documents import Assignment, ExecutorSlot
from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.job_documents import JobSpec
from penstock.replicas.replica_id import ReplicaId


@dataclass(frozen=True)
class PlacementRequest:
    """What of a job needs a node."""

    spec: JobSpec
    before: Assignment | None = None
    """How it is assigned now. What that takes does not count against it."""
    driver: bool = True
    """Whether it needs a node for its driver; else that stays where it is."""
    slots: tuple[ExecutorSlot, ...] = ()
    """The executors that stay where they are,"""
    missing: tuple[int, ...] = ()
    """and the numbers of those that need a node."""
    stay: str = ""
    """The node that the driver keeps if it can."""
    prefer: str = ""
    """The node that the driver goes to if that can take it,"""
    only: str = ""
    """or the only one that it may go to."""
    avoid: frozenset[str] = frozenset()
    """Nodes that the driver must not go to."""
    apart: frozenset[str] = frozenset()
    """Nodes that nothing of it may go to, because of other replicas of the job. A placer fills it in."""
    replica: int = 0
    """Which replica of the job."""

    @cached_property
    def id(self) -> ReplicaId:
        """The replica that it is about."""
        return ReplicaId(self.spec.name, self.replica)

    @property
    def staying(self) -> PlacementRequest:
        """What is asked for if the driver stays where it is: its executors, if it was started for some."""
        assert self.before is not None, "what is assigned nowhere cannot stay"
        if bool(self.spec.settings.resources.executors) != self.before.over_nodes:
            return replace(self, driver=False, slots=self.before.executors, missing=())
        return replace(self, driver=False)


@dataclass(frozen=True)
class PlacementResult:
    """Where it goes."""

    node: str | None = None
    """The driver's; None when no node can take it."""
    executors: Mapping[int, str] = field(default_factory=dict)
    """By number, those of the missing for which there is a node."""
    told: str = ""
    """Why no node can take the driver, or none of the executors without which it does not run."""
    executors_told: str = ""
    """Why no node can take an executor."""
    strategy: str = ""
    refused: str = ""
    """Why what the job's strategy said was not used."""
    waits: bool = False
    """Whether the job's strategy has not answered yet: ask again later."""


class Placer(Protocol):
    """Decides where jobs go."""

    def place(
        self, requests: Sequence[PlacementRequest], actual: ClusterState
    ) -> Mapping[ReplicaId, PlacementResult]:
        """Answer requests of different jobs together, by the replicas that they are about."""
        ...
