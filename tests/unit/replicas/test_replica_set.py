from __future__ import annotations

from typing import Any

import pytest

from penstock.cluster.job_documents import JobSpec
from penstock.cluster.node_documents import NodeInfo
from penstock.job_settings import Resources
from penstock.replicas.decisions.replica_set import replica_specs, shortage
from support.settings import make_spec


def _spec(**given: Any) -> JobSpec:
    return make_spec("count", "bundle", "count.py", **given)


def _nodes(*racks: str, **given: Any) -> dict[str, NodeInfo]:
    names = [f"n{number + 1}" for number in range(len(racks))]
    sizes = {"cores": 4, "memory": 8 << 30} | given
    return {
        name: NodeInfo(name, "", rack=rack, labels={"place": name}, **sizes)
        for name, rack in zip(names, racks, strict=True)
    }


@pytest.mark.parametrize(
    ("given", "members"),
    [
        ({}, ["count"]),
        ({"k": 1}, ["count", "count~1"]),
        ({"k": 2, "agreed": True}, ["count", "count~1", "count~2"]),
        ({"agreed": True}, ["count"]),
        ({"warm_standby": True}, ["count", "count~1"]),
        ({"k": 2, "warm_standby": True}, ["count", "count~1", "count~2"]),
    ],
)
def test_members(given: dict[str, Any], members: list[str]) -> None:
    assert [str(replica.id) for replica in replica_specs(_spec(**given))] == members


def test_members_are_wanted_like_their_job_but_for_where_the_first_was_moved() -> None:
    wanted = replica_specs(_spec(k=1, driver="n1", driver_by="user", generation=3))
    first, second = (replica.spec for replica in wanted)
    assert (first.driver, second.driver, second.driver_by) == ("n1", "", "")
    assert first.generation == second.generation == 3


@pytest.mark.parametrize(
    ("given", "nodes", "told"),
    [
        ({}, _nodes(), ""),
        ({"agreed": True}, _nodes(), ""),
        ({"k": 1}, _nodes("", ""), ""),
        ({"k": 1}, _nodes(""), "k=1 needs 2 nodes, and there is 1 with 1 core and 2048 MiB"),
        ({"k": 2}, _nodes(), "there are 0 with 1 core and 2048 MiB that it may use: add 3 nodes"),
        ({"warm_standby": True}, _nodes(""), "a warm standby needs 2 nodes"),
        ({"k": 1, "nodes": ("n1",)}, _nodes("", ""), "that it may use (n1): add 1 node"),
        ({"k": 1, "labels": {"place": "n2"}}, _nodes("", ""), "that it may use (n2): add 1 node"),
        ({"k": 1, "resources": Resources(cores=5)}, _nodes("", ""), "there are 0 with 5 cores"),
        ({"k": 1, "resources": Resources(memory=9 << 30)}, _nodes("", ""), "9216 MiB"),
        ({"k": 1}, _nodes("r1", "r2"), ""),
        ({"k": 1}, _nodes("r1", "r1"), ""),
        ({"k": 2}, _nodes("r1", "r1", "r2"), "k=2 needs nodes in 3 racks, and its nodes are in 2 racks"),
        ({"k": 1, "nodes": ("n1", "n2")}, _nodes("r1", "r1", "r2"), "in 1 rack (r1): add nodes in 1 rack"),
    ],
)
def test_shortage(given: dict[str, Any], nodes: dict[str, NodeInfo], told: str) -> None:
    found = shortage(_spec(**given), nodes)
    assert told in found
    assert bool(found) == bool(told)
