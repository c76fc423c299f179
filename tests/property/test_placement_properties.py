"""Every decision keeps every hard rule or says why none can, and is the same for the same snapshot."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from benchmarks.placement_baselines import BASELINES
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.schedule.clusters import random_cluster

from penstock.schedule.backup_location import solve
from penstock.schedule.backup_location.location_methods import described_problem
from penstock.schedule.cluster_file import Description, TaskBackup
from penstock.schedule.custom_strategy import CustomStrategy, StrategyProcessResult
from penstock.schedule.placement_constraints import RULES, obstacle, tasks_to_place, usages
from penstock.schedule.placement_decision import Placement, decide, verify
from penstock.schedule.placement_model import ClusterSnapshot
from penstock.schedule.placement_strategies import STRATEGIES, Exact

QUICK = {name: make for name, make in {**STRATEGIES, **BASELINES}.items() if name != "exact"}
SEEDS = st.integers(0, 1_000_000)


def _sound(placement: Placement, snapshot: ClusterSnapshot) -> None:
    """Check a decision from the rules themselves, node by node, not with what the strategies use."""
    assert verify(placement, snapshot) == []
    places = placement.matrix.places
    assert {*places, *placement.unplaced} == set(snapshot.task_named)
    assert not {*places} & {*placement.unplaced}
    for node in snapshot.nodes:
        here = [snapshot.task_named[task] for task in sorted(places) if places[task] == node.name]
        assert sum(task.cpu for task in here) <= node.cores + 1e-6
        assert sum(task.memory for task in here) <= node.memory
        groups = [task.apart for task in here if task.apart]
        assert len(groups) == len(set(groups))
        for task in here:
            assert not task.nodes or node.name in task.nodes
            assert all(node.labels.get(label) == value for label, value in task.labels.items())
            if snapshot.status(node) == "OVERLOADED" and task.current != node.name:
                assert task.id in placement.spilled
    used = usages(placement.matrix, snapshot)
    for name, reason in placement.unplaced.items():
        assert reason.startswith("no node can take it: ")
        task = snapshot.task_named[name]
        for node in snapshot.nodes:
            kept_off = obstacle(task, node, used[node.name], replace(snapshot, overloaded_above=1.0))
            assert kept_off is not None, f"{name} could be on {node.name}"
            assert kept_off[0] in RULES


def _stays(placement: Placement, snapshot: ClusterSnapshot, demanded: set[str]) -> None:
    for task in snapshot.tasks:
        if task.id not in demanded:
            assert placement.matrix.places[task.id] == task.current


@pytest.mark.parametrize("name", QUICK)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_a_decision_keeps_every_rule_or_says_why_none_can(name: str, seed: int) -> None:
    snapshot = random_cluster(seed, most_tasks=18, most_nodes=6)
    placement = decide(QUICK[name](), snapshot, name=name)
    assert placement.refused == ""
    _sound(placement, snapshot)
    _stays(placement, snapshot, {task.id for task in tasks_to_place(snapshot)})


@pytest.mark.parametrize("name", QUICK)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_rebalancing_keeps_every_rule_and_loses_nobody(name: str, seed: int) -> None:
    snapshot = random_cluster(seed, most_tasks=14, most_nodes=5)
    placement = decide(QUICK[name](), snapshot, name=name, demands=snapshot.tasks)
    _sound(placement, snapshot)
    assert set(placement.unplaced) <= {task.id for task in tasks_to_place(snapshot)}


@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_the_exact_strategy_keeps_every_rule(seed: int) -> None:
    pytest.importorskip("scipy")
    snapshot = random_cluster(seed, most_tasks=5, most_nodes=3)
    _sound(decide(Exact(seconds=2.0), snapshot, name="exact"), snapshot)


@pytest.mark.parametrize("name", QUICK)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
@example(seed=226_509)
def test_the_order_of_a_snapshot_does_not_matter(name: str, seed: int) -> None:
    snapshot = random_cluster(seed, most_tasks=18, most_nodes=6)
    first = decide(QUICK[name](), snapshot, name=name)
    assert decide(QUICK[name](), snapshot, name=name).to_plain() == first.to_plain()
    other = decide(QUICK[name](), _shuffled(snapshot, seed), name=name)
    assert other.matrix == first.matrix
    assert other.unplaced == first.unplaced
    assert (other.completed, other.spilled) == (first.completed, first.spilled)
    assert other.cost.total == pytest.approx(first.cost.total)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS)
def test_the_order_of_a_snapshot_does_not_matter_for_backups(seed: int) -> None:
    snapshot = random_cluster(seed, most_tasks=12, most_nodes=6)
    draw = Random(seed)
    backups = {
        task.id: TaskBackup(draw.uniform(1e6, 5e7), draw.uniform(0, 1e6), 10.0, 1.0)
        for task in snapshot.tasks
    }
    storage = {node.name: draw.choice([1e7, 1e8, 1e9]) for node in snapshot.nodes}
    matrix = decide(QUICK["balanced"](), snapshot, name="balanced").matrix
    first = solve(described_problem(Description(snapshot, storage, backups), matrix, 1), effort=400)
    shuffled = Description(_shuffled(snapshot, seed), storage, backups)
    assert solve(described_problem(shuffled, matrix, 1), effort=400) == first


def _shuffled(snapshot: ClusterSnapshot, seed: int) -> ClusterSnapshot:
    draw = Random(seed + 1)

    def turned(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(draw.sample(items, len(items)))

    return replace(
        snapshot,
        nodes=turned(snapshot.nodes),
        tasks=tuple(
            replace(task, labels=dict(reversed(task.labels.items()))) for task in turned(snapshot.tasks)
        ),
        traffic=turned(snapshot.traffic),
        links=turned(snapshot.links),
    )


_NAMES = st.sampled_from([*(f"t{number:02}" for number in range(9)), "nobody", ""])
_NODES = st.sampled_from(["n0", "n1", "n2", "n3", "nowhere", ""])
_ANSWERS = st.one_of(
    st.binary(max_size=40),
    st.dictionaries(_NAMES, _NODES).map(lambda places: json.dumps({"matrix": places}).encode()),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=5,
    ).map(lambda plain: json.dumps({"matrix": plain}).encode()),
)


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(seed=SEEDS, answer=_ANSWERS, code=st.sampled_from([0, 0, 0, 1, -9, None]))
def test_whatever_a_users_strategy_answers_the_decision_is_sound(
    seed: int, answer: bytes, code: int | None
) -> None:
    snapshot = random_cluster(seed)
    mine = CustomStrategy(
        "mine:Any", lambda question, seconds: StrategyProcessResult(code, answer, "said"), 1.0
    )
    placement = decide(mine, snapshot, name="mine:Any")
    _sound(placement, snapshot)
    _stays(placement, snapshot, {task.id for task in tasks_to_place(snapshot)})
    if placement.refused:
        assert placement.strategy == "balanced"
        assert placement.matrix == decide(QUICK["balanced"](), snapshot, name="balanced").matrix
    if code != 0:
        assert placement.refused


class _Raises:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def place(self, snapshot: ClusterSnapshot, demands: object) -> Any:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), RecursionError(), MemoryError(), KeyError(1), UnicodeDecodeError("a", b"", 0, 1, "b")],
)
def test_a_strategy_that_raises_is_refused_with_its_reason(error: Exception) -> None:
    snapshot = random_cluster(3)
    placement = decide(_Raises(error), snapshot, name="mine")
    assert type(error).__name__ in placement.refused
    _sound(placement, snapshot)
