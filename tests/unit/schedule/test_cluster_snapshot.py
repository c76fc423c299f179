"""Nodes and tasks from the documents of a cluster."""

from __future__ import annotations

from penstock.cluster.assignment_documents import ExecutorSlot
from penstock.cluster.node_documents import NodeInfo, NodeReport
from penstock.job_settings import Resources
from penstock.schedule.cluster_snapshot import node_of, tasks_of
from penstock.schedule.placement_model import OVERLOADED, ClusterSnapshot
from support.settings import make_assignment, make_spec, replace

NODES = {
    "n1": NodeInfo("n1", "h1", 4, 8 << 30, rack="r1", labels={"disk": "fast"}),
    "n2": NodeInfo("n2", "h2", 8, 8 << 30),
}
SPEC = make_spec(
    "count", "b", "job.py", resources=Resources(2, 1 << 30, 2, 3, 2 << 30), labels={"disk": "fast"}
)
ASSIGNED = make_assignment(
    "count", 1, 1, 1, "b", "job.py", "n1", 2, 1 << 30, executors=(ExecutorSlot(7, "n2", 3, 2 << 30),)
)


def test_a_job_is_a_driver_and_its_executors_where_they_run() -> None:
    tasks = tasks_of(SPEC, ASSIGNED, NODES)
    assert [(task.id, task.kind, task.cpu, task.memory, task.current) for task in tasks] == [
        ("count/driver", "driver", 2, 1 << 30, "n1"),
        ("count/executor-1", "executor", 3, 2 << 30, None),
        ("count/executor-7", "executor", 3, 2 << 30, "n2"),
    ]
    assert all(task.labels == {"disk": "fast"} for task in tasks)


def test_a_driver_that_was_moved_is_pinned_while_its_node_is_there() -> None:
    moved = replace(SPEC, driver="n2", nodes=("n1", "n2"))
    assert tasks_of(moved, None, NODES)[0].nodes == ("n2",)
    assert tasks_of(moved, None, {"n1": NODES["n1"]})[0].nodes == ("n1", "n2")


def test_on_a_spark_cluster_of_the_users_only_the_driver_is_placed() -> None:
    assert len(tasks_of(replace(SPEC, spark_master="spark://h:7077"), None, NODES)) == 1


def test_a_job_that_shall_end_has_tasks_only_while_it_is_assigned() -> None:
    ending = replace(SPEC, wanted="ended")
    assert tasks_of(ending, None, NODES) == []
    assert len(tasks_of(ending, ASSIGNED, NODES)) == 3


def test_the_load_of_a_node_is_that_of_its_scarcer_resource() -> None:
    report = NodeReport(0.0, 0.2, 95, 100, 0.0, 0.0)
    first, second = node_of(NODES["n1"], report), node_of(NODES["n2"], None)
    assert (first.load, second.load) == (0.95, 0.0)
    assert ClusterSnapshot((first,), ()).status(first) == OVERLOADED
    assert (first.rack, second.cores) == ("r1", 8)
