"""Makes assignments: of a job that has none, of one whose node is gone, of one that is wanted otherwise."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from penstock.cluster.documents import Assignment, ExecutorSlot, JobSpec
from penstock.cluster.placing import Choice, Demand, Room, choose, demands, slot_demand


def wanted_until(spec: JobSpec) -> str | None:
    """Return when the job shall end by itself: one that is drained ends like a bounded one."""
    return "drained" if spec.wanted == "ended" and spec.drain else spec.until


def other_code(spec: JobSpec, assignment: Assignment) -> bool:
    """Whether a job is wanted with other code than is assigned.

    A generation that was refused is given out again, so its number alone does not tell.
    """
    wanted = (spec.generation, spec.bundle, spec.entry)
    return wanted != (assignment.generation, assignment.bundle, assignment.entry)


def difference(spec: JobSpec, assignment: Assignment) -> str | None:
    """Return why a job needs a new worker to be as it is wanted; None when it does not."""
    resources = spec.resources
    if other_code(spec, assignment):
        return f"its code is generation {spec.generation} now"
    if spec.restarts != assignment.restarts:
        return "a new worker was asked for"
    if (resources.cores, resources.memory) != (assignment.cores, assignment.memory):
        return f"it asks for {resources.cores} cores and {resources.memory >> 20} MiB now"
    if bool(resources.executors) != bool(assignment.executors):
        return "it has executors now" if resources.executors else "it has no executors any more"
    if spec.spark_master != assignment.spark_master or dict(spec.conf) != dict(assignment.conf):
        return "its Spark settings have changed"
    if spec.nodes and assignment.node not in spec.nodes:
        return f"it is for {', '.join(spec.nodes)} only now"
    return None


def assign(
    spec: JobSpec,
    before: Assignment | None,
    room: Room,
    *,
    revision: int,
    epoch: int,
    now: float,
    reason: str,
    lost: frozenset[str] = frozenset(),
) -> Assignment | Choice:
    """Place all of a job for a new worker, or return why its driver fits nowhere.

    What the job has now does not count against it: the old worker leaves when the new one is ready. Executors
    that fit nowhere are left out; they follow when there is room.
    """
    for node, demand in demands(before) if before else ():
        room.give(node, demand)
    resources = spec.resources
    prefer = spec.driver or (before.node if before and before.node not in lost else "")
    demand = Demand(resources.cores, resources.memory)
    choice = choose(spec, demand, room, prefer=prefer)
    if choice.node is None:
        for node, taken in demands(before) if before else ():
            room.take(node, taken)
        return choice
    room.take(choice.node, demand)
    placed = Assignment(
        job=spec.name,
        epoch=epoch,
        revision=revision,
        generation=spec.generation,
        bundle=spec.bundle,
        entry=spec.entry,
        node=choice.node,
        cores=resources.cores,
        memory=resources.memory,
        spark_master=spec.spark_master,
        conf=spec.conf,
        until=wanted_until(spec),
        # Whoever comes first to it: this worker may die before it does. What has been done since then stays.
        fresh=spec.fresh,
        forget=spec.forget if spec.fresh else None,
        restarts=spec.restarts,
        after=spec.after,
        reason=reason,
        since=now,
    )
    slots = executors(spec, before.executors if before else (), room, lost, taken=False)
    return replace(placed, executors=slots)


def executors(
    spec: JobSpec,
    before: tuple[ExecutorSlot, ...],
    room: Room,
    lost: frozenset[str] = frozenset(),
    *,
    taken: bool = True,
) -> tuple[ExecutorSlot, ...]:
    """Place a job's executors: those that can stay do, what is missing goes where the fewest are.

    A slot whose node is lost keeps it while there is no room elsewhere: the node may come back. ``taken``
    says whether ``before`` is counted in the room.
    """
    resources = spec.resources
    wanted = Demand(resources.executor_cores, resources.executor_memory)
    usable = {slot.ordinal: slot for slot in before if _stays(spec, slot, wanted)}
    kept: dict[int, ExecutorSlot] = {}
    for ordinal, slot in sorted(usable.items()):
        if len(kept) < resources.executors:
            kept[ordinal] = slot
    if taken:
        for slot in before:
            if slot.ordinal not in kept:
                room.give(slot.node, slot_demand(slot))
    else:
        for slot in kept.values():
            room.take(slot.node, slot_demand(slot))
    there = Counter(slot.node for slot in kept.values() if slot.node not in lost)
    for ordinal, slot in sorted(kept.items()):
        if slot.node in lost:
            choice = choose(spec, wanted, room, avoid=there)
            if choice.node is not None:
                kept[ordinal] = _slot(ordinal, choice.node, wanted, room, there)
    free = (number for number in range(1, 10_000) if number not in usable)
    while len(kept) < resources.executors:
        choice = choose(spec, wanted, room, avoid=there)
        if choice.node is None:
            break
        ordinal = next(free)
        kept[ordinal] = _slot(ordinal, choice.node, wanted, room, there)
    return tuple(kept[ordinal] for ordinal in sorted(kept))


def _slot(ordinal: int, node: str, wanted: Demand, room: Room, there: Counter[str]) -> ExecutorSlot:
    room.take(node, wanted)
    there[node] += 1
    return ExecutorSlot(ordinal, node, wanted.cores, wanted.memory)


def _stays(spec: JobSpec, slot: ExecutorSlot, wanted: Demand) -> bool:
    return slot_demand(slot) == wanted and (not spec.nodes or slot.node in spec.nodes)
