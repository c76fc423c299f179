"""Users' strategies in real processes: what loops, dies, prints or starts others cannot hurt who asked."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.master.strategy_runner import StrategyProcess, strategy_named
from penstock.schedule.custom_strategy import CustomStrategy, CustomStrategyError
from penstock.schedule.placement_decision import decide
from penstock.schedule.placement_model import ClusterSnapshot, Node, Task
from penstock.schedule.placement_strategies import Balanced, UnknownStrategyError
from support.waiting import eventually

SNAPSHOT = ClusterSnapshot(
    (Node("a", 2, 1 << 30), Node("b", 2, 1 << 30)), (Task("t", "job", memory=1 << 20),)
)
MINE = """
import os, subprocess, sys, time

class Base:
    def place(self, snapshot, demands):
        self.act(snapshot)
        return {task.id: "b" for task in demands}

class Prints(Base):
    def act(self, snapshot):
        print('{"matrix": {"t": "a"}}', flush=True)
        os.write(1, b"nonsense")

class Loops(Base):
    def act(self, snapshot):
        while True:
            pass

class Leaves(Base):
    def act(self, snapshot):
        sys.exit(7)

class Greedy(Base):
    def act(self, snapshot):
        self.much = bytearray(8 << 30)

class Starts(Base):
    def act(self, snapshot):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(os.path.join(os.path.dirname(__file__), "child"), "w") as file:
            file.write(str(child.pid))

class Looks(Base):
    def act(self, snapshot):
        raise ValueError(sorted(name for name in os.environ if "PENSTOCK" in name or "SECRET" in name))
"""


@pytest.fixture
def runner(tmp_path: Path) -> StrategyProcess:
    (tmp_path / "mine.py").write_text(MINE)
    return StrategyProcess(tmp_path)


def test_what_a_strategy_prints_is_not_its_answer(runner: StrategyProcess) -> None:
    placement = decide(CustomStrategy("mine:Prints", runner, 60.0), SNAPSHOT, name="mine:Prints")
    assert placement.refused == ""
    assert placement.matrix.places == {"t": "b"}


@pytest.mark.parametrize(
    ("name", "kind"), [("Loops", "time"), ("Leaves", "died"), ("Greedy", "raised"), ("Nobody", "raised")]
)
def test_a_strategy_that_goes_wrong_is_refused(runner: StrategyProcess, name: str, kind: str) -> None:
    seconds = 1.0 if kind == "time" else 60.0
    started = time.monotonic()
    with pytest.raises(CustomStrategyError) as raised:
        CustomStrategy(f"mine:{name}", runner, seconds).place(SNAPSHOT, SNAPSHOT.tasks)
    assert raised.value.kind == kind
    assert time.monotonic() - started < seconds + 30.0
    placement = decide(CustomStrategy(f"mine:{name}", runner, seconds), SNAPSHOT, name="mine")
    assert placement.strategy == "balanced"
    assert set(placement.matrix.places) == {"t"}


def test_what_a_strategy_starts_ends_with_it(runner: StrategyProcess, tmp_path: Path) -> None:
    assert CustomStrategy("mine:Starts", runner, 60.0).place(SNAPSHOT, SNAPSHOT.tasks).places == {"t": "b"}
    child = int((tmp_path / "child").read_text())
    eventually("the end of what the strategy started", lambda: not _lives(child))


def test_a_strategy_sees_no_secrets(runner: StrategyProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "secret")
    monkeypatch.setenv("_SPARK_AUTH_SECRET", "secret")
    with pytest.raises(CustomStrategyError, match=r"ValueError: \[\]"):
        CustomStrategy("mine:Looks", runner, 60.0).place(SNAPSHOT, SNAPSHOT.tasks)


def test_the_exact_strategy_runs_in_a_process_and_tells_its_reasons() -> None:
    pytest.importorskip("scipy")
    exact = strategy_named("exact", seconds=60.0)
    placement = decide(exact, SNAPSHOT, name="exact")
    assert (placement.strategy, placement.refused) == ("exact", "")
    assert set(placement.matrix.places) == {"t"}
    many = tuple(Task(f"t{number}", "job", cpu=0.001) for number in range(1500))
    refused = decide(exact, ClusterSnapshot(SNAPSHOT.nodes, many), name="exact").refused
    assert "1500 tasks on 2 nodes are too many" in refused


def test_a_name_leads_to_its_strategy(tmp_path: Path) -> None:
    assert isinstance(strategy_named("balanced"), Balanced)
    assert strategy_named("mine:Nearest", tmp_path, 3.0) == CustomStrategy(
        "mine:Nearest", StrategyProcess(tmp_path), 3.0
    )
    with pytest.raises(UnknownStrategyError):
        strategy_named("nearest")


def test_deciding_loads_neither_solvers_nor_numpy() -> None:
    check = (
        "import sys; from penstock.schedule import placement_decision, custom_strategy, cluster_snapshot;"
        "loaded = {name.split('.')[0] for name in sys.modules};"
        "assert not loaded & {'numpy', 'scipy', 'pandas', 'pyarrow', 'pyspark'}, loaded"
    )
    subprocess.run([sys.executable, "-c", check], check=True, env={**os.environ})


def _lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
