"""A worker's line to the store, with a store in memory that goes away and comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from penstock.cluster.assignment_documents import BackupLocation, BackupStatus
from penstock.cluster.document_codec import DocumentError, decode, encode
from penstock.cluster.worker_documents import Progress, Result, WorkerInfo
from penstock.coord import store_paths
from penstock.coord.conditional_writes import read_backup_status, write_backup_status
from penstock.daemon.store_link import StoreLink
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from support.settings import make_assignment, replace
from support.waiting import eventually

ASSIGNMENT = make_assignment("job", 1, 2, 1, "b", "job.py", "n1", 1, 1)
INFO = WorkerInfo("job", 2, 1, "n1", 7, "starting", 0.0)
OTHER = WorkerInfo("job", 1, 1, "n2", 8, "running", 0.0)
PATH = store_paths.worker("job", 2, 1)
PLACE = f"{store_paths.ASSIGNMENTS}/job"


class _World:
    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.store = MemoryStore(self.ensemble)
        self.sessions: list[MemoryStore] = []
        self.link = StoreLink(self.connect, ASSIGNMENT, INFO)

    def connect(self) -> MemoryStore:
        self.sessions.append(MemoryStore(self.ensemble))
        return self.sessions[-1]

    def told(self) -> WorkerInfo | None:
        node = self.store.get(PATH)
        return decode(WorkerInfo, node.data) if node is not None else None


@pytest.fixture
def world() -> Iterator[_World]:
    world = _World()
    yield world
    world.ensemble.start()
    world.link.close()


def test_it_knows_nothing_until_the_store_answers(world: _World) -> None:
    world.ensemble.stop()
    world.link.start()
    assert world.link.view.known is False
    assert world.link.view.assignment == ASSIGNMENT
    assert world.link.wait_worker_info(0.05) is False
    world.ensemble.start()
    world.store.create(PLACE, encode(ASSIGNMENT))
    assert world.link.wait_worker_info(5.0)
    assert world.link.view.known
    assert world.told() == INFO


def test_it_sees_the_assignment_and_the_other_workers_change(world: _World) -> None:
    world.store.create(PLACE, encode(ASSIGNMENT))
    world.link.start()
    assert world.link.wait_worker_info(5.0)
    assert world.link.view.others == ()
    world.store.create(store_paths.worker("job", 1, 1), encode(OTHER), ephemeral=True)
    eventually("the others are known", lambda: world.link.view.others == (OTHER,))
    stopped = replace(OTHER, phase="stopped")
    world.store.set(store_paths.worker("job", 1, 1), encode(stopped))
    eventually("the others are known", lambda: world.link.view.others == (stopped,))
    world.store.delete(store_paths.worker("job", 1, 1))
    eventually("the others are known", lambda: world.link.view.others == ())
    new = replace(ASSIGNMENT, until="drained")
    world.store.set(PLACE, encode(new))
    eventually("the new assignment", lambda: world.link.view.assignment == new)
    world.store.delete(PLACE)
    eventually("the assignment is gone", lambda: world.link.view.assignment is None)
    assert max(world.ensemble.watches().values()) == 1, "watches pile up"


def test_a_phase_is_told_at_once_and_progress_not_too_often(world: _World) -> None:
    world.store.create(PLACE, encode(ASSIGNMENT))
    world.link.start()
    assert world.link.wait_worker_info(5.0)
    first = world.store.get(PATH)
    assert first is not None
    for batches in range(50):
        world.link.tell(replace(INFO, progress=Progress(batches=batches)))
    time.sleep(0.1)
    node = world.store.get(PATH)
    assert node is not None
    assert node.version == first.version
    world.link.tell(replace(INFO, phase="running", progress=Progress(batches=50)))
    eventually(
        "the worker says that it runs", lambda: (told := world.told()) is not None and told.phase == "running"
    )
    node = world.store.get(PATH)
    assert node is not None
    assert node.version == first.version + 1


def test_a_worker_whose_session_was_lost_comes_back(world: _World) -> None:
    world.store.create(PLACE, encode(ASSIGNMENT))
    world.link.start()
    assert world.link.wait_worker_info(5.0)
    world.ensemble.expire(world.sessions[0].session_id)
    eventually("the worker's word", lambda: world.told() == INFO)
    node = world.store.get(PATH)
    assert node is not None
    assert node.owner == world.sessions[-1].session_id


def test_a_worker_whose_job_was_ended_meanwhile_does_not_come_back(world: _World) -> None:
    world.link.start()
    eventually("the worker knows its cluster", lambda: world.link.view.known)
    assert world.link.view.assignment is None
    assert world.link.wait_worker_info(0.1) is False
    assert world.told() is None


def test_a_result_is_written_when_the_store_is_back(world: _World) -> None:
    world.store.create(PLACE, encode(ASSIGNMENT))
    world.link.start()
    assert world.link.wait_worker_info(5.0)
    world.ensemble.stop()
    result = Result("job", 2, "drained", "all is processed", 1.0)
    assert world.link.end(result, 0.05) is False
    world.ensemble.start()

    def written() -> bool:
        node = world.store.get(f"{store_paths.RESULTS}/job")
        return node is not None and decode(Result, node.data) == result

    eventually("the worker's word", written)


def test_who_leaves_is_gone_at_once(world: _World) -> None:
    world.store.create(PLACE, encode(ASSIGNMENT))
    world.link.start()
    assert world.link.wait_worker_info(5.0)
    world.link.close()
    assert world.told() is None


def test_a_job_whose_data_is_with_its_node_hears_of_its_location_and_of_its_copy(world: _World) -> None:
    assignment = replace(ASSIGNMENT, data_location="node")
    world.link = StoreLink(world.connect, assignment, INFO)
    known = BackupStatus("job", "n1", 1, 1, "n2", "http://n2", 5, 40)
    world.store.create(f"{store_paths.KEPT}/job", encode(known))
    world.store.create(PLACE, encode(assignment))
    world.link.start()
    assert world.link.wait_worker_info(5.0)
    assert (world.link.location, world.link.kept) == (None, known)
    location = BackupLocation("job", "n2", "http://n2", "n3")
    world.store.create(f"{store_paths.LOCATIONS}/job", encode(location))
    eventually("the job's location", lambda: world.link.location == location)
    world.store.delete(f"{store_paths.LOCATIONS}/job")
    eventually("the location is gone", lambda: world.link.location is None)
    said = BackupStatus("job", "n1", 2, 1, "n2", "http://n2", 6, 41)
    world.link.set_backup_status(said)
    assert world.link.wait_backup_status(5.0)
    node = world.store.get(f"{store_paths.KEPT}/job")
    assert node is not None
    assert decode(BackupStatus, node.data) == said


def test_a_store_that_is_away_hears_later_where_the_data_is(world: _World) -> None:
    world.link = StoreLink(world.connect, replace(ASSIGNMENT, data_location="node"), INFO)
    world.store.create(PLACE, encode(ASSIGNMENT))
    world.link.start()
    assert world.link.wait_worker_info(5.0)
    world.ensemble.stop()
    world.link.set_backup_status(BackupStatus("job", "n1", 2, 1, number=1))
    world.link.set_backup_status(BackupStatus("job", "n1", 2, 1, number=2))
    assert not world.link.wait_backup_status(0.05)
    world.ensemble.start()
    assert world.link.wait_backup_status(10.0)
    node = world.store.get(f"{store_paths.KEPT}/job")
    assert node is not None
    assert decode(BackupStatus, node.data).number == 2


def test_a_worker_runs_on_when_it_cannot_read_its_assignment_or_another_worker(world: _World) -> None:
    world.store.create(PLACE, encode(ASSIGNMENT))
    world.store.create(store_paths.worker("job", 1, 1), b'{"schema": 2}')
    world.link.start()
    assert world.link.wait_worker_info(5.0)
    [other] = world.link.view.others
    assert (other.revision, other.attempt, other.phase) == (1, 1, "unknown")
    world.store.set(PLACE, b'{"schema": 2}')
    world.link.tell(replace(INFO, phase="ready"))
    assert world.link.wait_worker_info(5.0), "it still tells how it is"
    eventually("it has looked", lambda: not world.link._stale)
    assert world.link.view.assignment == ASSIGNMENT


def test_where_data_is_is_not_overwritten_when_that_cannot_be_read() -> None:
    store = MemoryStore(MemoryEnsemble())
    store.create(f"{store_paths.KEPT}/job", b'{"schema": 2}')
    assert not write_backup_status(store, BackupStatus("job", "n1", 3, 1))
    with pytest.raises(DocumentError):
        read_backup_status(store, "job")
