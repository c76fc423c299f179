"""Two clusters on one storage: the second is refused, with a sentence that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from noting_machine import NotingMachine

from penstock.cluster.document_codec import decode, encode
from penstock.cluster.node_documents import ClusterInfo, MasterInfo, NodeInfo
from penstock.coord import store_paths
from penstock.master.master import Master
from penstock.supervisor.storage_marker import MARKER, ForeignStorageError, claim_storage
from penstock.supervisor.supervisor import Supervisor
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from support.settings import make_assignment


def test_a_storage_belongs_to_the_first_cluster_that_claims_it(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    claim_storage(storage, "one")
    claim_storage(storage, "one")
    with pytest.raises(ForeignStorageError, match=r"cluster \(one; this one is two\).*--storage.*remove"):
        claim_storage(storage, "two")
    assert [path.name for path in storage.iterdir()] == [MARKER], "nothing is left of writing it"
    (storage / MARKER).unlink()
    claim_storage(storage, "two")


@pytest.mark.parametrize("content", ["", "{}", '{"format": "penstock.cluster", "id": 7}', "[]"])
def test_a_marker_that_cannot_be_understood_is_nobodys_but_not_free(tmp_path: Path, content: str) -> None:
    (tmp_path / MARKER).write_text(content)
    with pytest.raises(ForeignStorageError, match="does not say"):
        claim_storage(tmp_path, "one")
    assert (tmp_path / MARKER).read_text() == content


def test_who_was_overtaken_while_it_wrote_the_marker_sees_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import penstock.supervisor.storage_marker as module

    create = module._create

    def overtaken(path: Path, cluster: str) -> None:
        create(path, "other")
        create(path, cluster)

    monkeypatch.setattr(module, "_create", overtaken)
    with pytest.raises(ForeignStorageError, match="another cluster"):
        claim_storage(tmp_path, "one")


def test_the_first_leader_gives_the_cluster_an_id_for_good() -> None:
    ensemble = MemoryEnsemble()
    names = iter(["first", "second"])

    def master(name: str) -> Master:
        info = MasterInfo(name, "", 1, 0.0, "")
        return Master(MemoryStore(ensemble), info, make_id=lambda: next(names))

    first = master("m1")
    first.step(1.0)
    first._leadership.resign()
    second = master("m2")
    second.step(2.0)
    second.step(3.0)
    assert second.epoch is not None
    node = MemoryStore(ensemble).get(store_paths.CLUSTER)
    assert node is not None
    assert decode(ClusterInfo, node.data).id == "first"


def test_a_supervisor_with_the_storage_of_another_cluster_is_refused(tmp_path: Path) -> None:
    claim_storage(tmp_path, "other")
    store = MemoryStore(MemoryEnsemble())
    assigned = make_assignment("job", 1, 1, 1, "a" * 64, "job.py", "n1", 1, 1)
    store.create(f"{store_paths.ASSIGNMENTS}/job", encode(assigned))
    machine = NotingMachine()
    supervisor = Supervisor(
        store,
        NodeInfo("n1", "", 1, 1),
        machine,
        machine,
        admit=lambda cluster: claim_storage(tmp_path, cluster),
    )
    store.create(store_paths.CLUSTER, encode(ClusterInfo("this", 1.0)))
    with pytest.raises(ForeignStorageError):
        supervisor.step(1.0)
    assert machine.started == []
    assert store.get(f"{store_paths.NODES}/n1") is None
    (tmp_path / MARKER).unlink()
    supervisor.step(2.0)
    assert machine.started == ["job"]
