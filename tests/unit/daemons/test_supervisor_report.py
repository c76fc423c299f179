"""What a supervisor says of its node, when its session ends while it does."""

from __future__ import annotations

from penstock.cluster.documents import NodeInfo
from penstock.cluster.supervising import Instance, Start
from penstock.coord import paths
from penstock.coord.memory import MemoryEnsemble, MemoryStore
from penstock.daemons.machine import Sample
from penstock.daemons.supervisor import Supervisor


class _Idle:
    """A node on which nothing runs."""

    def look(self, now: float) -> list[Instance]:
        return []

    def start(self, start: Start, now: float) -> None:
        raise AssertionError("nothing is assigned")

    def ask_to_end(self, instance: Instance, now: float) -> None:
        return

    def kill(self, instance: Instance, reason: str = "") -> None:
        return

    def count(self, instance: Instance) -> None:
        return

    def figures(self, instance: Instance) -> tuple[float, int, int]:
        return (0.0, 0, 0)

    def sample(self, now: float) -> Sample:
        return Sample(0.0, 0, 0, 0.0, 0.0)


class _Forgetful(MemoryStore):
    """A store whose session ends right before a report is written, once that is asked for."""

    expiring = False

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        if self.expiring and path.startswith(paths.REPORTS):
            self.expiring = False
            self._ensemble.expire(self.session_id)
        return super().set(path, data, version=version)


def test_a_report_whose_session_ended_is_made_anew() -> None:
    ensemble = MemoryEnsemble()
    store = _Forgetful(ensemble)
    idle = _Idle()
    supervisor = Supervisor(store, NodeInfo("n1", "", 1, 1), idle, idle)
    supervisor.step(10.0)
    store.expiring = True
    supervisor.step(20.0)
    assert store.get(f"{paths.REPORTS}/n1") is None
    supervisor.step(30.0)
    assert store.get(f"{paths.REPORTS}/n1") is not None
    assert store.get(f"{paths.NODES}/n1") is not None
