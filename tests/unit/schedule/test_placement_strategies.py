"""Every strategy and baseline: hard rules, repeatability, and what each of them is for."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest
from benchmarks.placement_baselines import BASELINES
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.schedule.clusters import random_cluster, roomy_cluster

from penstock.schedule.placement_constraints import find_violations, tasks_to_place
from penstock.schedule.placement_cost import DEFAULT_WEIGHTS, cost
from penstock.schedule.placement_decision import decide, verify
from penstock.schedule.placement_model import ClusterSnapshot, Matrix, Node, Task, Traffic
from penstock.schedule.placement_strategies import (
    STRATEGIES,
    Balanced,
    Exact,
    UnknownStrategyError,
    builtin_strategy,
)
from penstock.schedule.search.construction_heuristics import displace_tasks
from penstock.schedule.search.exact_placement import SolverError, solve
from penstock.schedule.search.placement_state import PlacementState, SnapshotIndex, initial_state

GIB = 1 << 30
QUICK = {name: make for name, make in {**STRATEGIES, **BASELINES}.items() if name != "exact"}


@pytest.mark.parametrize("name", QUICK)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 100_000))
def test_every_matrix_keeps_the_hard_rules_and_only_moves_what_it_must(name: str, seed: int) -> None:
    snapshot = random_cluster(seed, most_tasks=16, most_nodes=5)
    demands = tasks_to_place(snapshot)
    matrix = QUICK[name]().place(snapshot, demands)
    assert find_violations(matrix, snapshot) == []
    asked = {task.id for task in demands}
    for task in snapshot.tasks:
        if task.id not in asked:
            assert matrix.places[task.id] == task.current


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 100_000))
def test_a_decision_places_every_task_or_says_why_no_node_can_take_it(seed: int) -> None:
    snapshot = random_cluster(seed, most_tasks=16)
    placement = decide(Balanced(), snapshot, name="balanced")
    assert verify(placement, snapshot) == []
    assert placement.refused == ""
    assert {*placement.matrix.places, *placement.unplaced} == set(snapshot.task_named)
    for task, reason in placement.unplaced.items():
        assert task not in placement.matrix.places
        assert "it could take it now" not in reason
        assert set(placement.rejected[task]) == set(snapshot.node_named)


@pytest.mark.parametrize("name", ["balanced", "traffic", "packed"])
@pytest.mark.parametrize("seed", range(6))
def test_no_task_is_left_out_that_a_node_could_take(name: str, seed: int) -> None:
    draw = Random(seed)
    sizes = [(draw.choice([0.5, 1, 2, 3]), draw.choice([1, 2, 4]) * GIB) for _ in range(60)]
    tasks = tuple(
        Task(f"t{n:02}", f"j{n % 5}", cpu=cpu, memory=memory) for n, (cpu, memory) in enumerate(sizes)
    )
    traffic = tuple(Traffic(tasks[n].id, tasks[n + 5].id, draw.random()) for n in range(55))
    nodes = tuple(Node(f"n{n}", draw.choice([8, 16]), draw.choice([16, 32]) * GIB) for n in range(5))
    placement = decide(builtin_strategy(name), ClusterSnapshot(nodes, tasks, traffic), name=name)
    assert placement.unplaced
    for reason in placement.unplaced.values():
        assert "it could take it now" not in reason


@pytest.mark.parametrize("name", QUICK)
def test_the_same_snapshot_in_any_order_gives_the_same_decision(name: str) -> None:
    snapshot = random_cluster(7, most_tasks=16, most_nodes=5)
    turned = replace(
        snapshot, nodes=snapshot.nodes[::-1], tasks=snapshot.tasks[::-1], traffic=snapshot.traffic[::-1]
    )
    first = QUICK[name]().place(snapshot, tasks_to_place(snapshot))
    second = QUICK[name]().place(turned, tasks_to_place(turned))
    assert first == second


@pytest.mark.parametrize("seed", range(4))
def test_balanced_is_within_a_twentieth_of_the_best(seed: int) -> None:
    pytest.importorskip("scipy")
    snapshot = roomy_cluster(seed)
    index = SnapshotIndex(snapshot)
    solved = solve(index, *initial_state(index, snapshot.tasks, DEFAULT_WEIGHTS), DEFAULT_WEIGHTS, 20.0)
    near = cost(Balanced().place(snapshot, snapshot.tasks), snapshot).total
    assert solved.proven
    assert find_violations(solved.matrix, snapshot) == []
    assert solved.total == pytest.approx(cost(solved.matrix, snapshot).total)
    assert solved.bound <= near + 1e-6
    assert near <= 1.05 * solved.total


def test_exact_says_why_it_does_not_answer_and_the_default_is_used() -> None:
    many = tuple(Task(f"t{number}", "job", cpu=0.1) for number in range(30))
    snapshot = ClusterSnapshot((Node("a", 8, GIB), Node("b", 8, GIB)), many)
    placement = decide(Exact(largest=50), snapshot, name="exact")
    assert placement.strategy == "balanced"
    assert placement.refused.startswith("30 tasks on 2 nodes are too many for an exact placement")
    assert len(placement.matrix.places) == 30
    with pytest.raises(SolverError, match="no node can take big"):
        Exact().place(
            ClusterSnapshot((Node("a", 1, GIB),), (Task("big", "job", cpu=2),)), (Task("big", "job"),)
        )


def test_exact_leaves_what_is_not_demanded() -> None:
    pytest.importorskip("scipy")
    tasks = (Task("a", "j", current="m"), Task("b", "j", current="m"), Task("c", "j"))
    traffic = (Traffic("a", "b", 1.0), Traffic("b", "c", 1.0))
    snapshot = ClusterSnapshot((Node("m", 4, GIB), Node("n", 4, GIB)), tasks, traffic)
    placement = decide(Exact(), snapshot, name="exact")
    assert placement.refused == ""
    assert placement.matrix.places == {"a": "m", "b": "m", "c": "n"}


def _three(**figures: float) -> tuple[Node, ...]:
    return tuple(Node(name, 8, 8 * GIB, load=figures.get(name, 0.0)) for name in ("a", "b", "c"))


def test_packed_fills_few_nodes_and_balanced_many() -> None:
    snapshot = ClusterSnapshot(_three(), tuple(Task(f"t{number}", "j", memory=GIB) for number in range(6)))
    assert len(set(builtin_strategy("packed").place(snapshot, snapshot.tasks).places.values())) == 1
    balanced = builtin_strategy("balanced").place(snapshot, snapshot.tasks)
    assert [len(balanced.of_node(node)) for node in "abc"] == [2, 2, 2]


def test_traffic_keeps_heavy_pairs_together() -> None:
    tasks = tuple(Task(f"t{number}", "j", cpu=2, memory=2 * GIB) for number in range(6))
    traffic = tuple(Traffic(f"t{number}", f"t{number + 3}", 1e6) for number in range(3))
    snapshot = ClusterSnapshot(_three(), tasks, traffic)
    matrix = builtin_strategy("traffic").place(snapshot, tasks)
    assert cost(matrix, snapshot).cross_node == 0.0
    assert [len(matrix.of_node(node)) for node in "abc"] == [2, 2, 2]


def test_load_aware_goes_where_it_is_quiet_and_never_to_overloaded_nodes() -> None:
    tasks = tuple(Task(f"t{number}", "j") for number in range(3))
    snapshot = ClusterSnapshot(_three(a=0.95, b=0.5, c=0.2), tasks)
    places = builtin_strategy("load-aware").place(snapshot, tasks).places
    assert sorted(places.values()) == ["c", "c", "c"]


def test_overloaded_nodes_are_used_when_no_other_can() -> None:
    tasks = (Task("t", "j", nodes=("a",)), Task("u", "j"))
    placement = decide(
        builtin_strategy("load-aware"), ClusterSnapshot(_three(a=0.95), tasks), name="load-aware"
    )
    assert placement.spilled == ("t",)
    assert placement.matrix.places["t"] == "a"
    assert placement.matrix.places["u"] != "a"
    assert verify(placement, ClusterSnapshot(_three(a=0.95), tasks)) == []


def test_a_lost_node_moves_its_own_tasks_only() -> None:
    tasks = tuple(Task(f"t{number}", "j", memory=GIB) for number in range(9))
    snapshot = ClusterSnapshot(_three(), tasks)
    before = decide(Balanced(), snapshot, name="balanced")
    after = snapshot.placed(before.matrix.places).without("b")
    placement = decide(Balanced(), after, name="balanced")
    moved = placement.matrix.moved_from(before.matrix.places)
    assert sorted(moved) == before.matrix.of_node("b")


class _Careless:
    """Takes the room of a task that it leaves out."""

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        asked = {task.id for task in demands}
        return Matrix({"t1": "a", "t2": "b", "t3": "b"} if "t1" not in asked else {"t2": "a", "t3": "b"})


def test_what_runs_is_not_lost_by_rebalancing() -> None:
    tasks = (
        Task("t1", "j", cpu=4, current="a"),
        Task("t2", "j", cpu=2, current="b"),
        Task("t3", "j", cpu=2, current="b"),
    )
    snapshot = ClusterSnapshot((Node("a", 4, GIB), Node("b", 4, GIB)), tasks)
    placement = decide(_Careless(), snapshot, name="careless", demands=tasks)
    assert placement.matrix.places == {"t1": "a", "t2": "b", "t3": "b"}
    assert placement.unplaced == {}
    assert placement.refused == (
        "the optional moves would leave the running tasks t1 without a node,"
        " so only tasks that must move are moved"
    )


def test_what_balancing_leaves_out_is_placed_all_the_same() -> None:
    # In balance the two small ones, which come first, leave no node with four cores.
    small = tuple(Task(f"s{number}", "j", cpu=2, nodes=("a", "b")) for number in range(2))
    nodes = tuple(Node(name, 4, GIB) for name in "ab")
    large = Task("z", "j", cpu=4, nodes=("a", "b", "c"))
    placement = decide(
        Balanced(), ClusterSnapshot((*nodes, Node("c", 1, GIB)), (*small, large)), name="balanced"
    )
    assert placement.unplaced == {}


def test_another_task_gives_way_where_a_task_fits_nowhere() -> None:
    nodes = (Node("a", 4, 4 * GIB), Node("b", 4, GIB))
    first = Task("first", "j", cpu=2, memory=GIB, nodes=("a", "b"))
    second = Task("second", "j", cpu=2, memory=3 * GIB, nodes=("a", "b"))
    third = Task("third", "j", cpu=2, memory=GIB, nodes=("a", "x", "y"))
    index = SnapshotIndex(ClusterSnapshot(nodes, (first, second, third)))
    state = PlacementState(index, DEFAULT_WEIGHTS)
    state.put(0, 0)
    state.put(1, 0)
    assert displace_tasks(state, [2], [0, 1, 2]) == []
    assert state.matrix().places == {"first": "b", "second": "a", "third": "a"}
    assert find_violations(state.matrix(), index.snapshot) == []


def test_each_rejected_node_has_a_reason() -> None:
    tasks = (Task("t", "j", nodes=("a", "b")),)
    placement = decide(Balanced(), ClusterSnapshot(_three(), tasks), name="balanced")
    assert placement.matrix.places == {"t": "a"}
    assert placement.rejected["t"] == {
        "b": "it could take the task, but the total cost would change by +0.0000",
        "c": "the task is for a, b only",
    }
    plain = placement.to_plain(["t"])
    assert json.loads(json.dumps(plain)) == plain
    assert plain["rejected"]["t"]["c"] == "the task is for a, b only"
    assert plain["matrix"] == {"t": "a"}


@pytest.mark.parametrize("name", QUICK)
def test_without_nodes_or_without_tasks_nothing_is_placed(name: str) -> None:
    empty = decide(QUICK[name](), ClusterSnapshot((), (Task("t", "j"),)), name=name)
    assert empty.matrix.places == {}
    assert empty.unplaced == {"t": "the cluster has no nodes"}
    assert decide(QUICK[name](), ClusterSnapshot(_three(), ()), name=name).matrix.places == {}


def test_a_name_that_is_no_strategy_is_refused() -> None:
    with pytest.raises(UnknownStrategyError, match="balanced, packed, traffic, load-aware, exact"):
        builtin_strategy("fastest")


def test_baselines_place_as_their_systems_do() -> None:
    tasks = tuple(Task(f"t{number}", "j", cpu=1 + number % 2) for number in range(6))
    snapshot = ClusterSnapshot(_three(), tasks)
    even = BASELINES["storm-even"]().place(snapshot, tasks)
    assert [len(even.of_node(node)) for node in "abc"] == [2, 2, 2]
    together = BASELINES["storm-resource-aware"]().place(snapshot, tasks)
    assert len(together.of_node("a")) >= 5
    hashed = BASELINES["s4-hash"]().place(snapshot, tasks)
    assert hashed == BASELINES["s4-hash"]().place(snapshot, tasks[::-1])
