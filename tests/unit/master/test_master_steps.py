"""A master's steps on the store in memory: what it writes when it has not heard of everything yet."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.document_codec import decode, encode
from penstock.cluster.job_documents import JobStatus
from penstock.cluster.node_documents import MasterInfo, NodeInfo
from penstock.cluster.worker_documents import Result
from penstock.coord import store_paths
from penstock.coord.coordination_store import Create, Operation, Put, Watcher
from penstock.master.master import Master, MasterSettings
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from support.settings import make_spec, replace
from support.waiting import eventually

DRAINED = make_spec("job", "a" * 64, "job.py", wanted="ended", drain=True)
AGAIN = make_spec("job", "b" * 64, "job.py", generation=2, after=1)


def _phase(store: MemoryStore) -> str:
    node = store.get(f"{store_paths.STATUS}/job")
    assert node is not None
    return decode(JobStatus, node.data).phase


@pytest.mark.parametrize("last_first", [False, True])
def test_who_has_read_but_half_of_a_submission_does_not_end_the_job(last_first: bool) -> None:
    ensemble = MemoryEnsemble()
    held: list[Watcher] = []
    master = Master(
        MemoryStore(ensemble, deliver=held.append), MasterInfo("m1", "", 1, 0.0, ""), clock=lambda: 0.0
    )
    other = MemoryStore(ensemble)

    def deliver() -> None:
        while held:
            held.pop()()

    master.step(0.0)
    result = Result("job", 1, "drained", "all is processed", 1.0)
    other.create(f"{store_paths.RESULTS}/job", encode(result))
    master.write(
        [
            Create(f"{store_paths.JOBS}/job", encode(DRAINED)),
            Create(f"{store_paths.STATUS}/job", encode(JobStatus("ENDING", "draining", 0.0, 1))),
        ]
    )
    for moment in range(1, 4):
        deliver()
        master.step(float(moment))
    assert _phase(other) == "ENDED"
    deliver()
    master.step(4.0)

    master.write(
        [
            Put(f"{store_paths.JOBS}/job", encode(AGAIN)),
            Put(f"{store_paths.STATUS}/job", encode(JobStatus("PENDING", "it was submitted", 5.0, 1))),
        ]
    )
    assert held, "it has been told of something"
    seen = []
    for moment in range(5, 15):
        if held:
            held.pop(-1 if last_first else 0)()
        master.step(float(moment))
        seen.append(_phase(other))
    assert "ENDED" not in seen
    assert master.documents.jobs()["job"] == AGAIN, "what a refused write has found otherwise is read again"


def test_a_leader_that_was_paused_while_it_read_gives_a_node_its_whole_time() -> None:
    ensemble = MemoryEnsemble()
    clock = [0.0]

    class Paused(MemoryStore):
        """A store whose process is paused for long when it reads that a node is gone."""

        def children(self, path: str, watch: Watcher | None = None) -> list[str]:
            if path == store_paths.NODES and "n2" in super().children(path):
                clock[0] += 10.0
            return super().children(path, watch)

    master = Master(Paused(ensemble), MasterInfo("m1", "", 1, 0.0, ""), clock=lambda: clock[0])
    other = MemoryStore(ensemble)

    def step() -> Assignment:
        for _ in range(3):
            master.step(clock[0])
        assigned = other.get(f"{store_paths.ASSIGNMENTS}/job")
        assert assigned is not None
        return decode(Assignment, assigned.data)

    master.step(0.0)
    node = NodeInfo("n1", "", 4, 8 << 30)
    other.create(f"{store_paths.NODES}/n1", encode(node))
    master.write([Create(f"{store_paths.JOBS}/job", encode(make_spec("job", "a" * 64, "job.py")))])
    assert step().node == "n1"
    other.create(f"{store_paths.NODES}/n2", encode(replace(node, name="n2")))
    other.delete(f"{store_paths.NODES}/n1")
    assert step().node == "n1", "it was missed for no time, though the step took 10 s"
    clock[0] += master.settings.rules.node_grace
    assert step().node == "n2"


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_is_set_neither_loses_a_node_nor_keeps_one_that_is_gone(jump: float) -> None:
    ensemble = MemoryEnsemble()
    other = MemoryStore(ensemble)
    clocks = {"day": 1_000_000.0, "own": 5.0}
    master = Master(
        MemoryStore(ensemble),
        MasterInfo("m1", "", 1, 0.0, ""),
        clock=lambda: clocks["day"],
        monotonic=lambda: clocks["own"],
    )

    def step(seconds: float = 0.0, *, jump: float = 0.0) -> str:
        clocks["own"] += seconds
        clocks["day"] += seconds + jump
        for _ in range(3):
            master.step(clocks["day"])
        assigned = other.get(f"{store_paths.ASSIGNMENTS}/job")
        return decode(Assignment, assigned.data).node if assigned is not None else ""

    step()
    node = NodeInfo("n1", "", 4, 8 << 30)
    other.create(f"{store_paths.NODES}/n1", encode(node))
    master.write([Create(f"{store_paths.JOBS}/job", encode(make_spec("job", "a" * 64, "job.py")))])
    assert step() == "n1"
    other.create(f"{store_paths.NODES}/n2", encode(replace(node, name="n2")))
    other.delete(f"{store_paths.NODES}/n1")
    grace = master.settings.rules.node_grace
    assert step() == "n1"
    assert step(grace / 2, jump=jump) == "n1", "it was missed for half of its time"
    assert step(grace) == "n2"


def test_what_was_written_can_be_read_at_once_by_whoever_asks_next() -> None:
    """Watches that come late, or never, do not matter: what was written is read again."""
    ensemble = MemoryEnsemble()
    store = MemoryStore(ensemble, deliver=lambda watcher: None)
    master = Master(store, MasterInfo("m1", "http://m1", 1, 0.0, "0"), settings=MasterSettings(tick=30.0))
    stop = threading.Event()
    thread = threading.Thread(target=master.run, args=(stop,))
    thread.start()
    try:
        eventually("the master leads", lambda: master.epoch is not None)
        for number in range(20):
            job = f"job{number}"
            master.write([Create(f"/jobs/{job}", encode(make_spec(job, "b" * 64, "job.py")))])
            assert job in master.documents.jobs()
    finally:
        stop.set()
        master.wake()
        thread.join()


def test_replicas_are_assigned_with_the_status_of_their_job_in_one_transaction_or_not_at_all() -> None:
    ensemble = MemoryEnsemble()
    transactions: list[list[str]] = []

    class Watched(MemoryStore):
        """A store that notes what is written together, and in which the job changes before it is."""

        def transact(self, operations: Sequence[Operation]) -> None:
            if any(one.path.startswith(store_paths.ASSIGNMENTS) for one in operations):
                transactions.append([one.path for one in operations])
                if len(transactions) == 1:
                    other.set(f"{store_paths.JOBS}/job", encode(replace(wanted, wanted="ended")))
            super().transact(operations)

    wanted = make_spec("job", "a" * 64, "job.py", k=1, agreed=True)
    master = Master(Watched(ensemble), MasterInfo("m1", "", 1, 0.0, ""), clock=lambda: 0.0)
    other = MemoryStore(ensemble)
    master.step(0.0)
    for name in ("n1", "n2"):
        other.create(f"{store_paths.NODES}/{name}", encode(NodeInfo(name, "", 4, 8 << 30)))
    other.create(f"{store_paths.JOBS}/job", encode(wanted))
    for moment in range(1, 4):
        master.step(float(moment))
    [paths_written] = transactions
    assert paths_written[-3:] == ["/assignments/job", "/assignments/job~1", "/status/job"]
    assert "/jobs/job" in paths_written, "it is checked that the job is still wanted like this"
    assert other.children(store_paths.ASSIGNMENTS) == []
