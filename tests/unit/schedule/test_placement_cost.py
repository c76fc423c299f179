"""Each term of the cost by hand, and what is counted move by move against what is counted from nothing."""

from __future__ import annotations

from dataclasses import asdict
from math import hypot
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.schedule.clusters import random_cluster

from penstock.schedule.placement_constraints import find_violations
from penstock.schedule.placement_cost import DEFAULT_WEIGHTS, Cost, Weights, cost, imbalance
from penstock.schedule.placement_model import ClusterSnapshot, Link, Matrix, Node, Task, Traffic
from penstock.schedule.search.local_search import improve
from penstock.schedule.search.placement_state import NOWHERE, PlacementState, SnapshotIndex

NODES = (Node("a", 4, 400, rack="r"), Node("b", 4, 400, rack="r"), Node("c", 4, 400, rack="s"))


def _cost(
    places: dict[str, str], *tasks: Task, traffic: tuple[Traffic, ...] = (), links: tuple[Link, ...] = ()
) -> Cost:
    return cost(Matrix(places), ClusterSnapshot(NODES, tasks, traffic, links))


def test_imbalance_is_the_mean_distance_from_the_means_by_two() -> None:
    found = _cost({"s": "a", "t": "b"}, Task("s", "j", cpu=4, memory=200), Task("t", "j", cpu=2, memory=100))
    # Shares (1, 1/2), (1/2, 1/4), (0, 0); means (1/2, 1/4).
    assert found.imbalance == pytest.approx(2 * hypot(0.5, 0.25) / (2 * 3))
    assert imbalance([(0.3, 0.4)] * 5) == pytest.approx(0.0)
    assert imbalance([]) == 0.0


def test_traffic_counts_between_nodes_and_more_between_racks_with_a_thin_uplink() -> None:
    tasks = (Task("s", "j"), Task("t", "j"), Task("u", "j"))
    traffic = (Traffic("s", "t", 10.0), Traffic("t", "u", 30.0))
    near = _cost({"s": "a", "t": "a", "u": "b"}, *tasks, traffic=traffic)
    assert (near.cross_node, near.cross_rack) == (0.75, 0.0)
    far = _cost({"s": "a", "t": "b", "u": "c"}, *tasks, traffic=traffic)
    assert (far.cross_node, far.cross_rack) == (1.0, 0.75)
    thin = (Link("r", 100.0), Link("s", 50.0))
    assert _cost({"s": "a", "t": "b", "u": "c"}, *tasks, traffic=traffic, links=thin).cross_rack == 1.5


def test_moves_are_those_of_running_tasks() -> None:
    running = (Task("s", "j", current="a"), Task("t", "j", current="b"))
    tasks = (*running, Task("u", "j"), Task("v", "j", current="gone"))
    assert _cost({"s": "a", "t": "c", "u": "a", "v": "a"}, *tasks).moves == 0.5


def test_fit_is_what_is_used_of_one_resource_only() -> None:
    assert _cost({"s": "a"}, Task("s", "j", cpu=4, memory=100)).fit == pytest.approx(0.75 / 3)


def test_the_total_is_weighted() -> None:
    found = Cost.of(Weights(1, 2, 3, 4, 5), 0.1, 0.1, 0.1, 0.1, 0.1)
    assert found.total == pytest.approx(1.5)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_counting_move_by_move_is_counting_from_nothing(seed: int, lazy: bool) -> None:
    snapshot = random_cluster(seed)
    draw = Random(seed)
    index = SnapshotIndex(snapshot)
    state = PlacementState(index, DEFAULT_WEIGHTS)
    state.lazy = lazy
    for task in range(len(index.tasks)):
        state.put(task, draw.randrange(len(index.nodes)))
    state.recompute()
    for _ in range(10):
        task, node = draw.randrange(len(index.tasks)), draw.randrange(len(index.nodes))
        before, change = state.total(), state.change(task, node)
        state.move(task, node)
        assert state.total() == pytest.approx(before + change)
        state.confirm(before)
        expected = cost(state.matrix(), snapshot)
        assert state.total() == pytest.approx(expected.total, abs=1e-9)
        for term in asdict(DEFAULT_WEIGHTS):
            state.weights = Weights(**{other: float(other == term) for other in asdict(DEFAULT_WEIGHTS)})
            assert state.total() == pytest.approx(getattr(expected, term), abs=1e-9), term
        state.weights = DEFAULT_WEIGHTS


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_what_a_swap_would_change_is_what_it_changes(seed: int, lazy: bool) -> None:
    draw = Random(seed)
    index = SnapshotIndex(random_cluster(seed))
    state = PlacementState(index, DEFAULT_WEIGHTS)
    state.lazy = lazy
    for task in range(len(index.tasks)):
        state.put(task, draw.randrange(len(index.nodes)))
    state.recompute()
    for _ in range(10):
        first, second = draw.randrange(len(index.tasks)), draw.randrange(len(index.tasks))
        one, two = state.place[first], state.place[second]
        if one == two:
            continue
        before, change = state.total(), state.change_of_swap(first, second)
        assert (state.place[first], state.place[second], state.total()) == (one, two, before)
        state.move(first, two)
        state.move(second, one)
        assert state.total() == pytest.approx(before + change)
        state.confirm(before)


def test_with_many_nodes_of_different_sizes_a_change_is_told_nearly_right() -> None:
    draw = Random(3)
    nodes = tuple(Node(f"n{n:02}", draw.choice([4, 64]), 1 << draw.choice([33, 37])) for n in range(60))
    tasks = tuple(Task(f"t{n:03}", "j", cpu=0.2, memory=1 << 27) for n in range(300))
    snapshot = ClusterSnapshot(nodes, tasks)
    index = SnapshotIndex(snapshot)
    state = PlacementState(index, Weights(fit=0.0))
    assert state.lazy
    for task in range(300):
        state.put(task, draw.randrange(60))
    state.recompute()
    before = cost(state.matrix(), snapshot, state.weights).total
    differing = 0
    for task in range(100):
        home, node = state.place[task], draw.randrange(60)
        told = state.change(task, node)
        state.put(task, node)
        change = cost(state.matrix(), snapshot, state.weights).total - before
        state.put(task, home)
        assert told == pytest.approx(change, rel=0.0, abs=2e-5)  # Without the slope it is off by 1e-4.
        differing += nodes[home].cores != nodes[node].cores
    assert differing > 20


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_improving_never_raises_the_cost_nor_breaks_a_rule(seed: int) -> None:
    index = SnapshotIndex(random_cluster(seed))
    state = PlacementState(index, DEFAULT_WEIGHTS)
    for task in range(len(index.tasks)):
        able = [node for node in range(len(index.nodes)) if state.fits(task, node)]
        state.put(task, able[0] if able else NOWHERE)
    state.recompute()
    before = cost(state.matrix(), index.snapshot).total
    placed = set(state.matrix().places)
    improve(state, range(len(index.tasks)), 2000)
    assert cost(state.matrix(), index.snapshot).total <= before + 1e-9
    assert set(state.matrix().places) == placed
    assert find_violations(state.matrix(), index.snapshot) == []
