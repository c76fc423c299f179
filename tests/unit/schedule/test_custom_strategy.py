"""A user's strategy can do nothing worse than be refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.schedule.clusters import random_cluster

from penstock.cluster.document_codec import DocumentError
from penstock.schedule.custom_strategy import (
    CustomStrategy,
    CustomStrategyError,
    StrategyProcessResult,
    read_snapshot,
    run_custom,
    write_question,
)
from penstock.schedule.custom_strategy_process import answer
from penstock.schedule.placement_decision import decide
from penstock.schedule.placement_model import ClusterSnapshot, Node, Task

SNAPSHOT = ClusterSnapshot(
    (Node("a", 2, 1024), Node("b", 2, 1024)), (Task("s", "j", current="a"), Task("t", "j"))
)


class Second:
    """Places on the second node."""

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Any:
        assert [task.id for task in demands] == ["t"]
        return {"s": "a", "t": snapshot.nodes[1].name}


class Raises:
    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Any:
        raise ValueError("no idea")


class Silent:
    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Any:
        return None


class Numbers:
    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Any:
        return {"t": 3}


def _here(question: bytes, seconds: float) -> StrategyProcessResult:
    """Run the process's side in this process."""
    return StrategyProcessResult(0, json.dumps(answer(json.loads(question))).encode())


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__name__}"


def test_a_snapshot_survives_the_way_to_the_process() -> None:
    for seed in range(20):
        snapshot = random_cluster(seed)
        question = json.loads(write_question("m:C", snapshot, ()))
        assert read_snapshot(question["snapshot"]) == snapshot


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nodes": [{"name": "a", "cores": -1, "memory": 1}]}, "the cores of node 'a' is -1.0"),
        ({"nodes": [{"name": "a", "cores": float("nan"), "memory": 1}]}, "the cores of node 'a' is nan"),
        ({"nodes": [{"name": "a", "cores": 1, "memory": 1}] * 2}, "node 'a' is there 2 times"),
        ({"tasks": [{"id": "t", "job": "j", "cpu": float("inf")}]}, "the cpu of task 't' is inf"),
        ({"traffic": [{"first": "t", "second": "u", "rate": 1.0}]}, "there is traffic of task 't'"),
        ({"nodes": {}}, "ClusterSnapshot.nodes: expected a list"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        read_snapshot({"nodes": [], "tasks": [], **change})


def test_a_users_placement_is_used() -> None:
    placement = decide(CustomStrategy(_name(Second), _here), SNAPSHOT, name="mine")
    assert placement.refused == ""
    assert placement.strategy == "mine"
    assert placement.matrix.places == {"s": "a", "t": "b"}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Raises, "it raised ValueError: no idea"),
        (Silent, "it returned NoneType instead of a Matrix"),
        (Numbers, "task 't' is given 3: expected the name of a node"),
    ],
)
def test_what_a_users_class_does_wrong_is_a_reason(kind: type, reason: str) -> None:
    placement = decide(CustomStrategy(_name(kind), _here), SNAPSHOT, name="mine")
    assert reason in placement.refused
    assert placement.strategy == "balanced"
    assert set(placement.matrix.places) == {"s", "t"}


@pytest.mark.parametrize(
    ("finished", "kind"),
    [
        (StrategyProcessResult(None, b""), "time"),
        (StrategyProcessResult(-9, b"", "Killed"), "died"),
        (StrategyProcessResult(0, b""), "nonsense"),
        (StrategyProcessResult(0, b"hello"), "nonsense"),
        (StrategyProcessResult(0, b"[" * 100_000), "nonsense"),
        (StrategyProcessResult(0, b"[1]"), "nonsense"),
        (StrategyProcessResult(0, b"{}"), "nonsense"),
        (StrategyProcessResult(0, b'{"matrix": {"t": null}}'), "nonsense"),
        (StrategyProcessResult(0, b'{"error": "it raised"}'), "raised"),
    ],
)
def test_each_way_a_process_can_end_has_its_reason(finished: StrategyProcessResult, kind: str) -> None:
    with pytest.raises(CustomStrategyError) as raised:
        run_custom("m:C", SNAPSHOT, (), 1.0, lambda question, seconds: finished)
    assert raised.value.kind == kind


@pytest.mark.parametrize(
    ("matrix", "reason"),
    [
        ({"t": "b"}, "s was not to be moved from a"),
        ({"s": "a", "t": "z"}, "there is no node 'z'"),
        ({"s": "a", "t": "b", "u": "b"}, "there is no task 'u'"),
    ],
)
def test_a_matrix_that_breaks_a_rule_is_refused(matrix: dict[str, str], reason: str) -> None:
    finished = StrategyProcessResult(0, json.dumps({"matrix": matrix}).encode())
    placement = decide(CustomStrategy("m:C", lambda question, seconds: finished), SNAPSHOT, name="mine")
    assert reason in placement.refused
    assert placement.strategy == "balanced"


def test_what_a_strategy_leaves_out_the_default_places() -> None:
    finished = StrategyProcessResult(0, b'{"matrix": {"s": "a"}}')
    placement = decide(CustomStrategy("m:C", lambda question, seconds: finished), SNAPSHOT, name="mine")
    assert placement.completed == ("t",)
    assert placement.matrix.places == {"s": "a", "t": "b"}


@pytest.mark.parametrize("name", ["m", "m:", ":C", "m:C; x", "../m:C", "m:C:D"])
def test_a_name_is_a_module_and_a_class(name: str) -> None:
    def never(question: bytes, seconds: float) -> StrategyProcessResult:
        raise AssertionError("it was run")

    with pytest.raises(CustomStrategyError) as raised:
        run_custom(name, SNAPSHOT, (), 1.0, never)
    assert raised.value.kind == "name"
