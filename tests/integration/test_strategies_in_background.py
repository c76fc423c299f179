"""Strategies of users, asked by a master: real processes, and nobody waits for them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.placement_request import PlacementRequest, PlacementResult
from penstock.job_settings import Resources
from penstock.master.strategy_runner import StrategyAnswers, StrategyChooser
from penstock.replicas.replica_id import ReplicaId
from penstock.schedule.job_placer import JobPlacer
from penstock.schedule.placement_strategies import UnknownStrategyError
from support.settings import make_spec

CODE = '''
import time


class Last:
    """Everything on the last node."""

    def place(self, snapshot, demands):
        from penstock.schedule.placement_model import Matrix

        stay = {task.id: task.current for task in snapshot.tasks if task.current}
        return Matrix({**stay, **{task.id: snapshot.nodes[-1].name for task in demands}})


class Raises:
    def place(self, snapshot, demands):
        raise ValueError("I do not know")


class Loops:
    def place(self, snapshot, demands):
        while True:
            time.sleep(0.1)


class Nonsense:
    def place(self, snapshot, demands):
        return "n1"
'''

ACTUAL = ClusterState(nodes={name: NodeInfo(name, "", 4, 1 << 34) for name in ("n1", "n2")})


def _spec(strategy: str, name: str = "job") -> JobSpec:
    return make_spec(name, "b" * 64, "job.py", resources=Resources(1, 1 << 30), strategy=strategy)


PATIENT, SHORT = 120.0, 6.0
"""Seconds for code that answers, however slow a process is to start; and for code that does not."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(CODE)
    return tmp_path


@pytest.fixture
def placed(folder: Path) -> Place:
    return Place(folder, PATIENT)


class Place:
    """Asks as a master does: again whenever it is woken."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.woken = threading.Event()
        self.placer = JobPlacer(
            StrategyChooser(
                "balanced", lambda _: folder, asked=StrategyAnswers(self.woken.set), seconds=seconds
            )
        )

    def __call__(self, strategy: str) -> PlacementResult:
        deadline = time.monotonic() + 2 * PATIENT
        while True:
            began = time.monotonic()
            found = self.placer.place([PlacementRequest(_spec(strategy))], ACTUAL)[ReplicaId("job")]
            assert time.monotonic() - began < SHORT - 1.0, "the master waited for the user's code"
            if not found.waits:
                return found
            assert time.monotonic() < deadline, f"{strategy} was never answered"
            self.woken.wait(deadline - time.monotonic())
            self.woken.clear()


def test_what_a_users_class_says_is_done(placed: Place) -> None:
    assert placed("mine:Last") == PlacementResult("n2", strategy="mine:Last")


@pytest.mark.parametrize(
    ("strategy", "seconds", "reason"),
    [
        ("mine:Raises", PATIENT, "ValueError: I do not know"),
        ("mine:Loops", SHORT, "it did not answer within 6 s"),
        ("mine:Nonsense", PATIENT, "str"),
        ("mine:Nowhere", PATIENT, "Nowhere"),
    ],
)
def test_a_class_that_is_of_no_use_is_refused_and_the_default_decides(
    folder: Path, strategy: str, seconds: float, reason: str
) -> None:
    found = Place(folder, seconds)(strategy)
    assert found.node in ("n1", "n2")
    assert found.strategy == "balanced"
    assert reason in found.refused


def test_others_are_placed_while_one_thinks(folder: Path) -> None:
    requests = [PlacementRequest(_spec("mine:Loops", "slow")), PlacementRequest(_spec("", "quick"))]
    place = Place(folder, SHORT)
    found = place.placer.place(requests, ACTUAL)
    assert found[ReplicaId("slow")].waits
    assert found[ReplicaId("quick")].node is not None
    assert place.woken.wait(2 * PATIENT), "the process of the slow one is ended when its time is over"


def test_the_exact_strategy_runs_outside_the_master(placed: Place) -> None:
    found = placed("exact")
    assert (found.strategy, found.refused) == ("exact", "")


def test_a_cluster_is_not_started_with_a_strategy_that_there_is_not() -> None:
    with pytest.raises(UnknownStrategyError, match="there is no strategy 'fastest'"):
        StrategyChooser("fastest")
