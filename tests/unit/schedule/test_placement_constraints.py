"""Each hard rule on its own, and the check of a whole matrix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.schedule.placement_constraints import RULES, Usage, find_violations, obstacle, tasks_to_place
from penstock.schedule.placement_model import (
    NORMAL,
    OVERLOADED,
    ClusterSnapshot,
    Matrix,
    MatrixError,
    Node,
    Task,
)

NODE = Node("n", 4, 4 << 20, labels={"disk": "fast"})
TASK = Task("t", "job", cpu=1, memory=1 << 20)
SNAPSHOT = ClusterSnapshot((NODE,), (TASK,))


def _used(cpu: float = 0.0, memory: int = 0, apart: str = "") -> Usage:
    usage = Usage()
    usage.add(Task("other", "job", cpu=cpu, memory=memory, apart=apart))
    return usage


@pytest.mark.parametrize(
    ("rule", "task", "node", "others", "reason"),
    [
        ("pins", replace(TASK, nodes=("m", "o")), NODE, Usage(), "the task is for m, o only"),
        ("labels", replace(TASK, labels={"disk": "slow"}), NODE, Usage(), "it lacks the label disk=slow"),
        ("replicas", replace(TASK, avoid=("n",)), NODE, Usage(), "reserved for another replica of the job"),
        ("status", TASK, replace(NODE, load=0.95), Usage(), "its load is 0.95, above 0.90"),
        ("anti-affinity", replace(TASK, apart="g"), NODE, _used(apart="g"), "a task of the group 'g'"),
        ("cpu", TASK, NODE, _used(cpu=3.5), "1 cores asked for, 0.5 of 4 free"),
        ("memory", TASK, NODE, _used(memory=(3 << 20) + 1), "1 MiB asked for, 0 of 4 MiB free"),
    ],
)
def test_each_rule_keeps_a_task_off_a_node_and_says_why(
    rule: str, task: Task, node: Node, others: Usage, reason: str
) -> None:
    found = obstacle(task, node, others, SNAPSHOT)
    assert found is not None
    assert found[0] == rule
    assert reason in found[1]


def test_every_rule_is_tested_and_none_of_them_is_against_an_empty_node() -> None:
    assert list(RULES) == ["pins", "labels", "replicas", "status", "anti-affinity", "cpu", "memory"]
    everything = replace(TASK, nodes=("n",), labels={"disk": "fast"}, apart="g", cpu=4, memory=4 << 20)
    assert obstacle(everything, NODE, Usage(), SNAPSHOT) is None


def test_an_overloaded_node_keeps_what_it_has() -> None:
    busy = replace(NODE, load=0.95)
    assert SNAPSHOT.status(busy) == OVERLOADED
    assert SNAPSHOT.status(NODE) == NORMAL
    assert obstacle(replace(TASK, current="n"), busy, Usage(), SNAPSHOT) is None


def test_a_node_that_is_too_full_is_told_for_each_of_its_tasks() -> None:
    tasks = (replace(TASK, id="a", cpu=3), replace(TASK, id="b", cpu=3), replace(TASK, id="c", nodes=("m",)))
    snapshot = ClusterSnapshot((NODE, Node("m", 4, 4 << 20)), tasks)
    found = find_violations(Matrix({"a": "n", "b": "n", "c": "m"}), snapshot)
    assert [(violation.rule, violation.task) for violation in found] == [("cpu", "a"), ("cpu", "b")]
    assert find_violations(Matrix({"a": "n", "b": "m", "c": "m"}), snapshot) == []


def test_what_does_not_exist_is_a_violation() -> None:
    found = find_violations(Matrix({"t": "nowhere", "nobody": "n"}), SNAPSHOT)
    assert [str(violation) for violation in found] == [
        "nobody on n: there is no task 'nobody'",
        "t on nowhere: there is no node 'nowhere'",
    ]


def test_the_largest_leave_a_node_that_is_too_full_and_one_of_two_that_run_apart() -> None:
    tasks = (
        replace(TASK, id="large", cpu=3, current="n"),
        replace(TASK, id="small", cpu=2, current="n"),
        replace(TASK, id="one", apart="g", current="m"),
        replace(TASK, id="two", apart="g", current="m"),
        replace(TASK, id="lost", current="gone"),
        replace(TASK, id="new"),
    )
    snapshot = ClusterSnapshot((NODE, Node("m", 4, 4 << 20)), tasks)
    assert [task.id for task in tasks_to_place(snapshot)] == ["large", "lost", "new", "one"]


def test_a_matrix_is_read_from_json_and_says_what_it_moves() -> None:
    matrix = Matrix({"t2": "b", "t1": "a"})
    assert (matrix.of_node("a"), matrix.of_node("b"), matrix.of_node("c")) == (["t1"], ["t2"], [])
    assert Matrix.of_plain(matrix.to_plain()) == matrix
    assert matrix.moved_from({"t1": "a", "t2": "a"}) == {"t2": ("a", "b")}
    with pytest.raises(MatrixError, match="task 't1' is given 3"):
        Matrix.of_plain({"t1": 3})
