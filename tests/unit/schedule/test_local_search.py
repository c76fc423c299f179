"""The search makes no effort where nothing is to choose, and tries every placement where there are few."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from types import FrameType

import pytest
from tests.unit.schedule.clusters import random_cluster

from penstock.schedule.placement_constraints import find_violations
from penstock.schedule.placement_cost import cost
from penstock.schedule.placement_decision import decide
from penstock.schedule.placement_model import ClusterSnapshot, Matrix, Node, Task, Traffic
from penstock.schedule.placement_strategies import Balanced

GIB = 1 << 30


def _calls(run: Callable[[], object]) -> int:
    """Return how many functions of Penstock are called: the same on every machine."""
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        if event == "call" and str(frame.f_globals.get("__name__")).startswith("penstock."):
            count += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


def _cluster(tasks: int, nodes: int, *, racks: int = 1, traffic: bool = False) -> ClusterSnapshot:
    names = [f"t{number}" for number in range(tasks)]
    return ClusterSnapshot(
        tuple(Node(f"n{number}", 8, 16 * GIB, rack=f"r{number % racks}") for number in range(nodes)),
        tuple(Task(name, "j", cpu=1 + number % 2, memory=GIB) for number, name in enumerate(names)),
        tuple(Traffic(names[0], name, 1.0) for name in names[1:]) if traffic else (),
    )


@pytest.mark.parametrize(
    ("tasks", "nodes", "most"),
    [(1, 1, 100), (1, 2, 150), (1, 10, 350), (2, 2, 200), (2, 10, 1500), (4, 4, 3500)],
)
def test_few_placements_take_few_calls(tasks: int, nodes: int, most: int) -> None:
    snapshot = _cluster(tasks, nodes, traffic=True)
    assert _calls(lambda: Balanced().place(snapshot, snapshot.tasks)) <= most


def test_a_new_task_beside_running_ones_takes_few_calls() -> None:
    snapshot = _cluster(12, 2, traffic=True)
    running = {task.id: f"n{number % 2}" for number, task in enumerate(snapshot.tasks[1:])}
    placed = snapshot.placed(running)
    assert _calls(lambda: decide(Balanced(), placed, name="balanced")) <= 700


def test_where_every_task_has_one_node_there_is_no_search() -> None:
    free = _cluster(8, 4, racks=2, traffic=True)
    pinned = replace(
        free, tasks=tuple(replace(task, nodes=(f"n{at % 4}",)) for at, task in enumerate(free.tasks))
    )
    assert _calls(lambda: Balanced().place(pinned, pinned.tasks)) < 1000
    assert _calls(lambda: Balanced().place(free, free.tasks)) > 10_000


def _least(snapshot: ClusterSnapshot) -> float:
    """Return the least cost of all placements of all tasks that keep the rules; infinite if there is none."""
    names, nodes = [task.id for task in snapshot.tasks], [node.name for node in snapshot.nodes]
    least = float("inf")
    for places in product(nodes, repeat=len(names)):
        matrix = Matrix(dict(zip(names, places, strict=True)))
        if not find_violations(matrix, snapshot):
            least = min(least, cost(matrix, snapshot).total)
    return least


@pytest.mark.parametrize("seed", range(40))
def test_where_there_are_few_placements_the_best_is_found(seed: int) -> None:
    snapshot = random_cluster(seed, most_tasks=4, most_nodes=4)
    matrix = Balanced().place(snapshot, snapshot.tasks)
    if len(matrix.places) == len(snapshot.tasks):
        assert cost(matrix, snapshot).total == pytest.approx(_least(snapshot), abs=1e-9)
    else:
        assert _least(snapshot) == float("inf")
