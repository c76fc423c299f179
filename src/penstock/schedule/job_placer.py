"""Places the requests of a leader.

It ranks jobs, orders the requests, runs strategies, and turns their matrices into answers. Tasks that are not
requested stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.placement_request import PlacementRequest, PlacementResult
from penstock.replicas.replica_id import ReplicaId
from penstock.schedule.cluster_snapshot import (
    DRIVER,
    EXECUTOR,
    assumed_traffic,
    driver_task,
    executor_task,
    standing_snapshot,
    task_id,
)
from penstock.schedule.custom_strategy import StrategyPendingError, is_custom
from penstock.schedule.placement_constraints import current_placement, obstacle, usages
from penstock.schedule.placement_decision import Placement, decide
from penstock.schedule.placement_model import ClusterSnapshot, Task
from penstock.schedule.placement_strategies import DEFAULT_STRATEGY, Balanced, Strategy
from penstock.schedule.replica_anti_affinity import placement_rounds, with_excluded_nodes

DEFAULT_PRIORITY = 5
"""The priority of a job without one: the default of ``QoS``."""

ChooseStrategy = Callable[[JobSpec], tuple[str, Strategy]]
"""Returns the strategy that decides about a job, and its name."""


def always_balanced(_: JobSpec) -> tuple[str, Strategy]:
    """Return the default strategy for every job."""
    return DEFAULT_STRATEGY, Balanced()


@dataclass(frozen=True)
class JobPlacer:
    """A :class:`penstock.cluster.placement_request.Placer` that asks strategies.

    Tasks that are not requested keep their nodes and resources. If there is not room for all, jobs of a
    higher priority come first, with all of their replicas, then those that were submitted earlier; among
    those of one priority, users' own strategies run last. Consecutive jobs with the same strategy are placed
    together. Replicas of a job are placed one after the other.
    """

    choose: ChooseStrategy = always_balanced

    def place(
        self, requests: Sequence[PlacementRequest], actual: ClusterState
    ) -> Mapping[ReplicaId, PlacementResult]:
        """Answer all requests. Tasks of lost nodes are either requested, or take no room.

        A running task that finds no other node keeps its own, and its room. Then the other requests are
        decided again. In each round at least one request becomes smaller.
        """
        ranks = ranks_of(request.spec for request in requests)
        asked = {request.id: request for request in requests}
        failed: dict[ReplicaId, PlacementResult] = {}
        while True:
            answers = self._answered(list(asked.values()), actual, ranks)
            again = False
            for replica, request in sorted(asked.items(), key=itemgetter(0)):
                answer = answers.get(replica, PlacementResult())
                less = remaining_request(request, answer, actual)
                if less is request:
                    continue
                again = True
                if request.driver and (less is None or not less.driver):
                    failed[replica] = replace(answer, node=None, told=_rejection_reason(request, answer))
                if less is None:
                    del asked[replica]
                else:
                    asked[replica] = less
            if not again:
                return {**answers, **{one: _failed(failed[one], answers.get(one)) for one in failed}}

    def _answered(
        self, requests: Sequence[PlacementRequest], actual: ClusterState, ranks: Mapping[str, int]
    ) -> Mapping[ReplicaId, PlacementResult]:
        snapshot = standing_snapshot(requests, actual)
        answers: dict[ReplicaId, PlacementResult] = {}
        for equals in _by_priority(requests):
            for asked in placement_rounds(equals):
                kept = [with_excluded_nodes(request, requests, snapshot) for request in asked]
                snapshot, placed = self._decided(kept, snapshot, ranks)
                for replica, answer in placed.items():
                    answers[replica] = _together(answers.get(replica), answer)
        return answers

    def _decided(
        self, requests: Sequence[PlacementRequest], snapshot: ClusterSnapshot, ranks: Mapping[str, int]
    ) -> tuple[ClusterSnapshot, Mapping[ReplicaId, PlacementResult]]:
        """Answer requests without two replicas of one job, those with users' strategies last."""
        chosen = []
        for request in requests:
            name, strategy = self.choose(request.spec)
            own = is_custom(name)
            # A class of the same name in other code is another class.
            key = (own, name, request.spec.bundle if own else "")
            chosen.append((own, ranks[request.spec.name], key, strategy, request))
        answers: dict[ReplicaId, PlacementResult] = {}
        # Consecutive requests of one strategy are decided together: the order by rank is kept.
        for key, group in groupby(sorted(chosen, key=lambda one: one[:2]), key=lambda one: one[2]):
            _, _, _, strategies, asked = zip(*group, strict=True)
            snapshot, placed = _placed(key[1], strategies[0], asked, snapshot, ranks)
            answers |= placed
        return snapshot, answers


def _by_priority(requests: Iterable[PlacementRequest]) -> list[list[PlacementRequest]]:
    """Return requests in groups of one priority each, the most urgent first."""
    groups: dict[int, list[PlacementRequest]] = {}
    for request in requests:
        groups.setdefault(_priority(request.spec), []).append(request)
    return [groups[priority] for priority in sorted(groups, reverse=True)]


def _together(driver: PlacementResult | None, executors: PlacementResult) -> PlacementResult:
    """Merge the answers for the driver and for the executors of a request."""
    if driver is None:
        return executors
    return replace(driver, executors=executors.executors, executors_told=executors.executors_told)


def _rejection_reason(request: PlacementRequest, answer: PlacementResult) -> str:
    """Return why a driver is not placed, or not without its executors."""
    if answer.executors and request.before is None:
        return f"no node has room for the driver once the executors are placed: {answer.told}"
    return answer.told or answer.executors_told


def _failed(first: PlacementResult, last: PlacementResult | None) -> PlacementResult:
    """Return the answer for a driver without a node: the first reason, and the nodes of its executors."""
    return replace(first, executors=last.executors if last is not None and not last.waits else {})


def ranks_of(specs: Iterable[JobSpec]) -> dict[str, int]:
    """Return the ranks of jobs if there is not room for all: by priority, then by age, then by name.

    >>> jobs = [JobSpec("a", "", "", submitted=2.0), JobSpec("b", "", "", submitted=1.0)]
    >>> urgent = JobSpec("c", "", "", structure={"qos": {"priority": 9}}, submitted=3.0)
    >>> ranks_of([*jobs, urgent])
    {'c': 0, 'b': 1, 'a': 2}
    """
    keys = {spec.name: (-_priority(spec), spec.submitted, spec.name) for spec in specs}
    return {job: rank for rank, job in enumerate(sorted(keys, key=lambda job: keys[job]))}


def _priority(spec: JobSpec) -> int:
    """Return the priority of a job from its structure; the default if that has no valid one."""
    qos = spec.structure.get("qos")
    given = qos.get("priority") if isinstance(qos, Mapping) else None
    return given if isinstance(given, int) else DEFAULT_PRIORITY


def remaining_request(
    request: PlacementRequest, answer: PlacementResult, actual: ClusterState
) -> PlacementRequest | None:
    """Return the rest of a request after an answer, if tasks that found no node stay where they are.

    It is the request itself if it does not shrink, and None if nothing is left of it.
    """
    before = request.before
    if request.driver and answer.node is None:
        if before is None:
            return None if answer.executors else request  # Executors without a driver do nothing.
        left = request.staying
        if not before.executors and before.node not in actual.nodes:
            return replace(left, missing=())  # Executors without a driver do nothing.
        return replace(left, slots=before.executors, missing=()) if answer.waits else left
    there = {slot.ordinal: slot for slot in before.executors} if before is not None else {}
    stay = tuple(
        there[ordinal]
        for ordinal in request.missing
        if ordinal in there and ordinal not in answer.executors and there[ordinal].node in actual.nodes
    )
    if stay:
        missing = tuple(
            ordinal for ordinal in request.missing if ordinal not in {one.ordinal for one in stay}
        )
        return replace(request, slots=(*request.slots, *stay), missing=missing)
    if request.driver and request.missing and not request.slots and not answer.executors:
        return request.staying if before is not None else None
    return request


def _placed(
    name: str,
    strategy: Strategy,
    requests: Sequence[PlacementRequest],
    snapshot: ClusterSnapshot,
    ranks: Mapping[str, int],
) -> tuple[ClusterSnapshot, dict[ReplicaId, PlacementResult]]:
    """Place the requests of one strategy; return also the resulting snapshot."""
    for request in requests:
        snapshot = _with_driver_that_stays(request, snapshot)
    tasks = [
        replace(task, rank=ranks[request.spec.name])
        for request in requests
        for task in wanted_tasks(request, snapshot)
    ]
    snapshot = replace(snapshot, tasks=(*snapshot.tasks, *tasks))
    names = {str(request.id) for request in requests}
    snapshot = replace(snapshot, traffic=(*snapshot.traffic, *assumed_traffic(snapshot.tasks, names)))
    try:
        decided = decide(strategy, snapshot, name=name)
        decided, snapshot = _without_preferences(decided, strategy, name, requests, snapshot)
    except StrategyPendingError as error:
        waiting = PlacementResult(told=str(error), strategy=name, waits=True)
        return snapshot, {request.id: waiting for request in requests}
    placed = snapshot.placed(decided.matrix.places)
    gone = {task.id for task in tasks if task.id not in decided.matrix.places}
    after = replace(placed, tasks=tuple(task for task in placed.tasks if task.id not in gone))
    return after, {request.id: _answer(request, decided) for request in requests}


def _with_driver_that_stays(request: PlacementRequest, snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Leave a driver where it is if possible; other tasks are then placed around it."""
    wish = request.only or request.prefer or request.stay
    off = request.avoid | request.apart
    if not request.driver or not request.stay or wish != request.stay or request.stay in off:
        return snapshot
    task = _driver(request, snapshot)
    node = snapshot.node_named[request.stay]
    used = usages(current_placement(snapshot), snapshot)[node.name]
    # It runs there already: a high load of the node is no reason to leave.
    if obstacle(task, replace(node, load=0.0), used, snapshot) is not None:
        return snapshot
    return replace(snapshot, tasks=(*snapshot.tasks, replace(task, current=node.name)))


def wanted_tasks(request: PlacementRequest, snapshot: ClusterSnapshot) -> list[Task]:
    """Return the tasks of a request that need a node."""
    spec = request.spec
    apart = tuple(sorted(request.apart))
    tasks = [
        executor_task(spec, ordinal, avoid=apart, replica=request.replica) for ordinal in request.missing
    ]
    if request.driver and task_id(request.id, DRIVER) not in snapshot.task_named:
        tasks.insert(0, _driver(request, snapshot))
    return tasks


def _driver(request: PlacementRequest, snapshot: ClusterSnapshot) -> Task:
    spec = request.spec
    allowed = not spec.settings.placement.nodes or request.prefer in spec.settings.placement.nodes
    preferred = request.prefer if allowed and request.prefer in snapshot.node_named else ""
    wish = request.only or preferred
    nodes = (wish,) if wish else spec.settings.placement.nodes
    if request.avoid:
        able = nodes or tuple(node.name for node in snapshot.nodes)
        # No node is allowed: the empty name matches none.
        nodes = tuple(name for name in able if name not in request.avoid) or ("",)
    return driver_task(spec, nodes, avoid=tuple(sorted(request.apart)), replica=request.replica)


def _without_preferences(
    decided: Placement,
    strategy: Strategy,
    name: str,
    requests: Sequence[PlacementRequest],
    snapshot: ClusterSnapshot,
) -> tuple[Placement, ClusterSnapshot]:
    """Place drivers again whose preferred node cannot take them: any other is better than none."""
    disappointed = {
        task_id(request.id, DRIVER): request
        for request in requests
        if request.prefer and not request.only and task_id(request.id, DRIVER) in decided.unplaced
    }
    if not disappointed:
        return decided, snapshot
    tasks = tuple(
        replace(_driver(replace(disappointed[task.id], prefer=""), snapshot), rank=task.rank)
        if task.id in disappointed
        else task
        for task in snapshot.placed(decided.matrix.places).tasks
    )
    relaxed = replace(snapshot, tasks=tasks)
    again = decide(strategy, relaxed, name=name)
    return replace(again, refused=again.refused or decided.refused), relaxed


def _answer(request: PlacementRequest, decided: Placement) -> PlacementResult:
    replica = request.id
    places = decided.matrix.places
    driver = task_id(replica, DRIVER)
    executors = {
        ordinal: places[task]
        for ordinal in request.missing
        if (task := task_id(replica, f"{EXECUTOR}-{ordinal}")) in places
    }
    lacking = [
        decided.unplaced[task]
        for ordinal in request.missing
        if (task := task_id(replica, f"{EXECUTOR}-{ordinal}")) in decided.unplaced
    ]
    return PlacementResult(
        places.get(driver),
        executors,
        decided.unplaced.get(driver, ""),
        f"none of its executors has a node: {lacking[0]}" if lacking else "",
        decided.strategy,
        decided.refused,
    )
