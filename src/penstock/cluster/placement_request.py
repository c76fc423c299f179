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
    """The parts of a job, or of one of its replicas, that need a node."""

    spec: JobSpec
    before: Assignment | None = None
    """Its current assignment, whose resources count as free for it."""
    driver: bool = True
    """Whether its driver needs a node; otherwise that stays where it is."""
    slots: tuple[ExecutorSlot, ...] = ()
    """The executors that stay where they are."""
    missing: tuple[int, ...] = ()
    """The numbers of the executors that need a node."""
    stay: str = ""
    """The node that the driver keeps if possible."""
    prefer: str = ""
    """The node that the driver is placed on if it has room,"""
    only: str = ""
    """or the only one that it may be placed on."""
    avoid: frozenset[str] = frozenset()
    """Nodes that the driver must not be placed on."""
    apart: frozenset[str] = frozenset()
    """Nodes with other replicas of the job, which nothing of it may be placed on. Set by the placer."""
    replica: int = 0
    """The number of the replica."""

    @cached_property
    def id(self) -> ReplicaId:
        """The replica that it is about."""
        return ReplicaId(self.spec.name, self.replica)

    @property
    def staying(self) -> PlacementRequest:
        """The request if the driver stays where it is: only executors, if it was started for some."""
        assert self.before is not None, "what is assigned nowhere cannot stay"
        if bool(self.spec.settings.resources.executors) != self.before.over_nodes:
            return replace(self, driver=False, slots=self.before.executors, missing=())
        return replace(self, driver=False)


@dataclass(frozen=True)
class PlacementResult:
    """The nodes for a request."""

    node: str | None = None
    """The node of the driver; None if no node can take it."""
    executors: Mapping[int, str] = field(default_factory=dict)
    """By number, the nodes of the missing executors that have one."""
    told: str = ""
    """Why no node can take the driver, or any of the executors that it needs to run."""
    executors_told: str = ""
    """Why no node can take an executor."""
    strategy: str = ""
    refused: str = ""
    """Why the answer of the job's strategy was not used."""
    waits: bool = False
    """Whether the job's strategy has not answered yet: ask again later."""


class Placer(Protocol):
    """Chooses the nodes of jobs."""

    def place(
        self, requests: Sequence[PlacementRequest], actual: ClusterState
    ) -> Mapping[ReplicaId, PlacementResult]:
        """Answer requests of different jobs together; answers are keyed by replica."""
        ...
