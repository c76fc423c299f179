"""Builds an assignment from a job spec and a placement, and explains why one no longer fits its spec.

It also builds the lists of each node's jobs. It must not know when a job is assigned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count, islice
from typing import Literal

from penstock.cluster.assignment_documents import Assignment, ExecutorSlot, ReplicaAssignment, RestoreSource
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.node_documents import NodeJobs
from penstock.cluster.placement_request import PlacementRequest, PlacementResult
from penstock.cluster.worker_documents import Result
from penstock.job_settings import JobSettings
from penstock.replicas.decisions.replica_set import is_replicated, nodes_used
from penstock.replicas.replica_id import ReplicaId


def wanted_until(spec: JobSpec) -> Literal["drained"] | None:
    """Return when the job ends by itself: a job that is drained ends like a bounded one."""
    return "drained" if spec.wanted == "ended" and spec.drain else spec.settings.until


def other_code(spec: JobSpec, assignment: Assignment) -> bool:
    """Return whether the spec has other code or other parameters than the assignment.

    The number of a refused generation is used again, so it alone does not show that.
    """
    wanted = (spec.generation, spec.bundle, spec.entry, dict(spec.params), dict(spec.env))
    return wanted != (
        assignment.generation,
        assignment.bundle,
        assignment.entry,
        dict(assignment.params),
        dict(assignment.env),
    )


def restart_reason(spec: JobSpec, assignment: Assignment) -> str | None:
    """Return why a job needs a new worker to match its spec; None if it needs none."""
    resources, running = spec.settings.resources, assignment.settings
    if other_code(spec, assignment):
        return f"its code was updated to generation {spec.generation}"
    if spec.restarts != assignment.restarts:
        return "a new worker was requested"
    if (resources.cores, resources.memory) != (running.resources.cores, running.resources.memory):
        return f"it now requests {resources.cores} cores and {resources.memory >> 20} MiB"
    if bool(resources.executors) != assignment.over_nodes:
        return "it now has executors" if resources.executors else "it no longer has executors"
    if spec.settings.spark != running.spark:
        return "its Spark settings have changed"
    if is_replicated(spec):
        if assignment.membership is None:
            return "it now has replicas"
        if _way_of_replication(spec.settings) != _way_of_replication(running):
            return "its replication settings have changed"
    if spec.settings.placement.nodes and assignment.node not in spec.settings.placement.nodes:
        return f"it may now run on {', '.join(spec.settings.placement.nodes)} only"
    return None


def _way_of_replication(settings: JobSettings) -> tuple[str, str]:
    """Return the settings that every replica works with; other replica settings need no new worker."""
    return settings.replicas.publisher, settings.replicas.recovery


def has_drained(spec: JobSpec, assignment: Assignment | None, result: Result) -> bool:
    """Return whether a job that is drained has done so with its current assignment.

    Other code or another size that no node has room for is no reason to process everything again. The result
    does not count if the job starts from scratch, or if a new worker was requested.
    """
    if assignment is None or (result.outcome, result.revision) != ("drained", assignment.revision):
        return False
    forgotten = spec.fresh and result.revision <= spec.forget
    return wanted_until(spec) == "drained" and spec.restarts == assignment.restarts and not forgotten


def assignment_of(
    request: PlacementRequest,
    placed: PlacementResult,
    *,
    revision: int,
    epoch: int,
    now: float,
    reason: str,
    restore: RestoreSource | None = None,
    membership: ReplicaAssignment | None = None,
) -> Assignment:
    """Return the assignment of a new worker whose driver has a node.

    Executors without a node are left out if at least one has one; they are added when there is room.
    """
    assert placed.node is not None, "a driver without a node cannot be assigned"
    spec = request.spec
    made = Assignment(
        job=str(request.id),
        epoch=epoch,
        revision=revision,
        generation=spec.generation,
        bundle=spec.bundle,
        entry=spec.entry,
        node=placed.node,
        settings=replace(spec.settings, until=wanted_until(spec)),
        params=spec.params,
        env=spec.env,
        # Of several workers the first that begins ignores the past: this one may die before. What was done
        # since then is kept.
        fresh=spec.fresh,
        forget=spec.forget if spec.fresh else None,
        restarts=spec.restarts,
        after=spec.after,
        restore=restore,
        membership=membership,
        strategy=placed.strategy,
        refused=placed.refused,
        reason=reason,
        since=now,
        changed=now,
    )
    return replace(made, executors=slots_of(request, placed))


def slots_of(request: PlacementRequest, placed: PlacementResult) -> tuple[ExecutorSlot, ...]:
    """Return a job's executors: those that stay, and those that were placed.

    An executor whose node is lost keeps that node while no other has room: the node may come back.
    """
    asked = request.spec.settings.resources
    before = request.before.executors if request.before else ()
    slots = {slot.ordinal: slot for slot in before if slot.ordinal in request.missing}
    slots |= {slot.ordinal: slot for slot in request.slots}
    for ordinal, node in placed.executors.items():
        slots[ordinal] = ExecutorSlot(ordinal, node, asked.executor_cores, asked.executor_memory)
    return tuple(slots[ordinal] for ordinal in sorted(slots))


def executors(
    spec: JobSpec, before: tuple[ExecutorSlot, ...], lost: frozenset[str]
) -> tuple[tuple[ExecutorSlot, ...], tuple[int, ...]]:
    """Return the executors of a job that stay, and the numbers of those that need a node.

    >>> from penstock.job_settings import Resources
    >>> spec = JobSpec("job", "", "", settings=JobSettings(Resources(executors=3, executor_memory=8)))
    >>> slots = (ExecutorSlot(1, "n1", 1, 8), ExecutorSlot(2, "n2", 1, 8), ExecutorSlot(3, "n3", 2, 8))
    >>> staying, missing = executors(spec, slots, frozenset({"n2"}))
    >>> [slot.ordinal for slot in staying], missing
    ([1], (2, 3))
    """
    asked = spec.settings.resources
    usable = [slot for slot in sorted(before, key=lambda slot: slot.ordinal) if _stays(spec, slot)]
    kept = usable[: asked.executors]
    staying = tuple(slot for slot in kept if slot.node not in lost)
    taken = {slot.ordinal for slot in usable}
    new = islice((number for number in count(1) if number not in taken), asked.executors - len(kept))
    away = (slot.ordinal for slot in kept if slot.node in lost)
    return staying, tuple(sorted([*away, *new]))


def _stays(spec: JobSpec, slot: ExecutorSlot) -> bool:
    asked = (spec.settings.resources.executor_cores, spec.settings.resources.executor_memory)
    return (slot.cores, slot.memory) == asked and (
        not spec.settings.placement.nodes or slot.node in spec.settings.placement.nodes
    )


def jobs_by_node(assignments: Mapping[ReplicaId, Assignment]) -> dict[str, NodeJobs]:
    """Return the jobs and replicas of each node that something is assigned to.

    >>> jobs_by_node({ReplicaId("count"): Assignment("count", 1, 1, 1, "", "", "n1")})
    {'n1': NodeJobs(node='n1', jobs=('count',))}
    """
    found: dict[str, list[str]] = {}
    for replica, assignment in assignments.items():
        for node in nodes_used(assignment):
            found.setdefault(node, []).append(str(replica))
    # By their text, as the lists of earlier versions are: a list that changes is written again.
    return {node: NodeJobs(node, tuple(sorted(found[node]))) for node in sorted(found)}


def listing_changes(
    assignments: Mapping[ReplicaId, Assignment], listed: Mapping[str, NodeJobs]
) -> list[tuple[str, NodeJobs | None]]:
    """Return the nodes whose list changes, with the new list; None for a list to be removed.

    >>> listing_changes({}, {"n1": NodeJobs("n1", ("count",))})
    [('n1', None)]
    """
    wanted = jobs_by_node(assignments)
    return [
        (node, wanted.get(node))
        for node in sorted({*wanted, *listed})
        if wanted.get(node) != listed.get(node)
    ]
