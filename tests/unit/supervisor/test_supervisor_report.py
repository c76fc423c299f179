"""What a supervisor says of its node, when its session ends while it does."""

from __future__ import annotations

from noting_machine import NotingMachine

from penstock.cluster.node_documents import NodeInfo
from penstock.coord import store_paths
from penstock.supervisor.supervisor import Supervisor
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore


class _Forgetful(MemoryStore):
    """A store whose session ends right before a report is written, once that is asked for."""

    expiring = False

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        if self.expiring and path.startswith(store_paths.REPORTS):
            self.expiring = False
            self._ensemble.expire(self.session_id)
        return super().set(path, data, version=version)


def test_a_report_whose_session_ended_is_made_anew() -> None:
    ensemble = MemoryEnsemble()
    store = _Forgetful(ensemble)
    idle = NotingMachine()
    supervisor = Supervisor(store, NodeInfo("n1", "", 1, 1), idle, idle)
    supervisor.step(10.0)
    store.expiring = True
    supervisor.step(20.0)
    assert store.get(f"{store_paths.REPORTS}/n1") is None
    supervisor.step(30.0)
    assert store.get(f"{store_paths.REPORTS}/n1") is not None
    assert store.get(f"{store_paths.NODES}/n1") is not None
