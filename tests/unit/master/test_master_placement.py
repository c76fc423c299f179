"""A leader that places: what it decided is looked at again when it is written; copies are told of once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from without_code import AnyBundle, NoLogs

from penstock.cluster.assignment_documents import Assignment, BackupLocation, BackupStatus
from penstock.cluster.client_requests import InvalidRequestError, RefusedError
from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.document_codec import decode, encode
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.node_documents import MasterInfo, NodeInfo
from penstock.cluster.placement_request import PlacementRequest, PlacementResult, Placer
from penstock.coord import store_paths
from penstock.master.cluster_service import ClusterService
from penstock.master.master import Master
from penstock.replicas.replica_id import ReplicaId
from penstock.schedule.job_placer import JobPlacer
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from support.settings import make_submission

GIB = 1 << 30


class Leader:
    """A leader with nodes of 4 cores, whose registrations others hold."""

    def __init__(self, *nodes: str) -> None:
        ensemble = MemoryEnsemble()
        self.others = MemoryStore(ensemble)
        self.master = Master(MemoryStore(ensemble), MasterInfo("m1", "", 1, 0.0, ""), clock=lambda: 0.0)
        self.service = ClusterService(self.master, AnyBundle(), NoLogs(), lambda: 1.0)
        self.look(0.0)
        for name in nodes:
            self.add(name)

    def add(self, name: str) -> None:
        node = NodeInfo(name, "", 4, 8 * GIB, url=f"http://{name}")
        self.others.create(f"{store_paths.NODES}/{name}", encode(node), ephemeral=True)

    def look(self, now: float) -> None:
        for _ in range(4):
            self.master.step(now)

    def submit(self, name: str, **more: Any) -> None:
        self.service.submit(make_submission("job.py", {"name": name, "vertices": []}, **more), "b" * 64)

    def assignment(self, name: str) -> Assignment | None:
        node = self.others.get(f"{store_paths.ASSIGNMENTS}/{name}")
        return decode(Assignment, node.data) if node is not None else None

    def location(self, name: str) -> tuple[BackupLocation, int] | None:
        node = self.others.get(f"{store_paths.LOCATIONS}/{name}")
        return (decode(BackupLocation, node.data), node.version) if node is not None else None


@dataclass
class _NodeGoes:
    """A placer during whose work the node that it chooses goes away."""

    placer: Placer
    store: MemoryStore
    went: str = ""

    def place(
        self, requests: Sequence[PlacementRequest], actual: ClusterState
    ) -> Mapping[ReplicaId, PlacementResult]:
        found = self.placer.place(requests, actual)
        if not self.went:
            self.went = next(iter(found.values())).node or ""
            self.store.delete(f"{store_paths.NODES}/{self.went}")
        return found


def test_a_node_that_went_while_it_was_chosen_gets_nothing() -> None:
    leader = Leader("n1", "n2")
    leader.look(1.0)
    goes = _NodeGoes(JobPlacer(), leader.others)
    leader.master.placer = goes
    leader.submit("job")
    written = []
    for moment in range(2, 8):
        leader.master.step(float(moment))
        written.append(leader.assignment("job"))
    assert goes.went in ("n1", "n2")
    assert {one.node for one in written if one is not None} == {"n1", "n2"} - {goes.went}


def test_a_copy_is_told_of_once_and_again_when_its_node_goes() -> None:
    leader = Leader("n1", "n2", "n3")
    leader.submit("job", data_location="node")
    leader.look(2.0)
    assigned = leader.assignment("job")
    assert assigned is not None
    assert assigned.settings.data_location == "node"
    first = leader.location("job")
    assert first is not None
    assert first[0].store != assigned.node
    for moment in (3.0, 30.0, 60.0, 90.0):
        leader.look(moment)
    assert leader.location("job") == first, "nothing has changed, so nothing was written"
    leader.others.delete(f"{store_paths.NODES}/{first[0].store}")
    leader.look(91.0)
    second = leader.location("job")
    assert second is not None
    assert second[0].store not in (assigned.node, first[0].store)


def test_a_job_whose_node_is_lost_runs_where_that_was_decided_and_from_its_copy() -> None:
    leader = Leader("n1", "n2", "n3")
    leader.submit("job", data_location="node")
    leader.look(2.0)
    before, location = leader.assignment("job"), leader.location("job")
    assert before is not None
    assert location is not None
    store, url = location[0].store, location[0].store_url
    kept = BackupStatus("job", before.node, before.revision, 1, store, url, number=3, batch=7)
    leader.others.create(f"{store_paths.KEPT}/job", encode(kept))
    leader.others.delete(f"{store_paths.NODES}/{before.node}")
    leader.look(3.0)
    leader.look(60.0)
    after = leader.assignment("job")
    assert after is not None
    assert after.node == location[0].redeploy
    assert after.restore is not None
    assert (after.restore.store, after.restore.url) == (store, url)
    assert after.restore.revision == before.revision


def test_what_cannot_be_with_a_node_is_refused() -> None:
    leader = Leader("n1", "n2")
    with pytest.raises(InvalidRequestError, match="'shared' or 'node'"):
        leader.submit("job", data_location="everywhere")
    with pytest.raises(InvalidRequestError, match="there is no strategy 'fastest'"):
        leader.submit("job", strategy="fastest")
    leader.submit("job", data_location="node")
    leader.look(2.0)
    with pytest.raises(RefusedError, match="it moves only when that node is lost"):
        leader.service.migrate("job", "n2")
    with pytest.raises(InvalidRequestError, match="keeps its data with its node cannot have executors"):
        leader.service.scale("job", {"executors": 1}, None)


def test_data_does_not_change_its_place_by_a_word() -> None:
    leader = Leader("n1", "n2")
    leader.submit("job", data_location="node")
    leader.look(2.0)
    leader.service.kill("job", drain=False)
    leader.look(3.0)
    with pytest.raises(
        RefusedError, match="with its node: submit it with --data-location node, or from scratch"
    ):
        leader.submit("job")
    fresh = make_submission("job.py", {"name": "job", "vertices": []}, fresh=True)
    leader.service.submit(fresh, "b" * 64)


def test_a_job_keeps_the_node_with_its_data_among_those_it_may_use() -> None:
    leader = Leader("n1", "n2")
    leader.submit("job", data_location="node")
    leader.look(2.0)
    assigned = leader.assignment("job")
    assert assigned is not None
    [other] = {"n1", "n2"} - {assigned.node}
    with pytest.raises(RefusedError, match=f"keeps its data on {assigned.node}"):
        leader.service.scale("job", {}, (other,))
    assert leader.service.scale("job", {}, (assigned.node,))["name"] == "job"


def test_a_job_is_not_submitted_again_without_the_node_that_has_its_data() -> None:
    leader = Leader("n1", "n2")
    leader.submit("job", data_location="node")
    leader.look(2.0)
    assigned = leader.assignment("job")
    assert assigned is not None
    kept = BackupStatus("job", assigned.node, assigned.revision, 1)
    leader.others.create(f"{store_paths.KEPT}/job", encode(kept))
    leader.service.kill("job", drain=False)
    leader.look(3.0)
    [other] = {"n1", "n2"} - {assigned.node}
    with pytest.raises(RefusedError, match=f"keeps its data on {assigned.node}: include that node"):
        leader.submit("job", data_location="node", nodes=(other,))
    leader.submit("job", data_location="node", nodes=(other,), fresh=True)


def test_a_job_that_is_over_has_no_tasks_to_explain() -> None:
    leader = Leader("n1")
    leader.submit("job")
    leader.look(2.0)
    assert leader.service.placement("job")["matrix"] == {"job/driver": "n1"}
    leader.service.kill("job", drain=False)
    leader.look(3.0)
    assert leader.service.placement("job")["rejected"] == {}


def test_a_spec_says_how_its_data_is_kept() -> None:
    leader = Leader("n1")
    leader.submit("job", data_location="node", strategy="packed")
    leader.look(2.0)
    spec: JobSpec = leader.master.documents.jobs()["job"]
    assert (spec.settings.data_location, spec.settings.placement.strategy) == ("node", "packed")
