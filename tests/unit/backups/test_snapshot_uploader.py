"""Copies of a job's data on their way to another node, with stores that are away, moved or suspicious."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from penstock.backups.snapshots.snapshot_client import Sent
from penstock.backups.snapshots.snapshot_manifest import Manifest, SnapshotFile
from penstock.backups.worker.snapshot_uploader import (
    SnapshotUploader,
    initial_backup_status,
    snapshot_clients,
)
from penstock.cluster.assignment_documents import Assignment, BackupLocation, BackupStatus, RestoreSource
from penstock.cluster.document_codec import decode, encode
from penstock.cluster.worker_documents import WorkerInfo
from penstock.coord import store_paths
from penstock.daemon.store_link import StoreLink
from penstock.daemon.worker_folder import WorkerConfig
from penstock.engine.storage.job_folder import Claim, take_over
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.errors import PenstockError
from penstock.node_client import NodeRequestError
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from support.settings import make_assignment, replace
from support.waiting import eventually

ASSIGNMENT = make_assignment("job", 1, 2, 1, "b", "job.py", "n1", 1, 1, data_location="node")


class FakeStore:
    """What a node keeps, in memory."""

    def __init__(self) -> None:
        self.manifests: list[Manifest] = []
        self.objects: dict[str, bytes] = {}
        self.events: list[str] = []
        self.trouble: PenstockError | None = None
        self.asked = 0

    def send(
        self,
        manifest: Manifest,
        open_piece: Callable[[SnapshotFile], BinaryIO],
        stop: threading.Event | None = None,
    ) -> Sent:
        assert stop is not None
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        sent = 0
        for piece in manifest.pieces:
            if piece.sha256 not in self.objects:
                with open_piece(piece) as file:
                    self.objects[piece.sha256] = file.read()
                sent += piece.size
        self.manifests.append(manifest)
        self.events.append("sent")
        return Sent(len(self.manifests) + 10, sent, 0)

    def forget(self, job: str, *, revision: int, attempt: int) -> None:
        assert (job, revision, attempt) == ("job", 2, 1)
        self.events.append("forgotten")

    def close(self) -> None:
        pass


class World:
    """A job with a ledger, a store of documents, and nodes that keep copies, by their addresses."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "kept" / "job" / "home"
        self.home.mkdir(parents=True)
        self.ensemble = MemoryEnsemble()
        self.store = MemoryStore(self.ensemble)
        self.nodes = {"n2": FakeStore(), "n3": FakeStore()}
        self.started: list[tuple[SnapshotUploader, StoreLink]] = []
        self.place = take_over(self.home / "cluster-jobs" / "job", Claim(2, 1))
        self.batch = -1

    def commit(self) -> None:
        self.batch += 1
        assert Ledger(self.place / "ledger").commit(LedgerEntry(self.batch, {"batch": self.batch + 1}))

    def locate(self, node: str) -> None:
        location = BackupLocation("job", node, f"http://{node}", "n3")
        path = f"{store_paths.LOCATIONS}/job"
        if self.store.get(path) is None:
            self.store.create(path, encode(location))
        else:
            self.store.set(path, encode(location))

    def begin(self, assignment: Assignment = ASSIGNMENT) -> SnapshotUploader:
        instance = WorkerConfig("job", "n1", "h", 2, 1, "", "", "", str(self.home), "", assignment)
        info = WorkerInfo("job", 2, 1, "n1", 7, "running", 0.0)
        link = StoreLink(lambda: MemoryStore(self.ensemble), assignment, info)
        link.start()
        keeping = SnapshotUploader(
            instance, link, lambda url: self.nodes[url.removeprefix("http://")], every=0.01
        )
        self.started.append((keeping, link))
        keeping.start()
        return keeping

    @property
    def kept(self) -> BackupStatus | None:
        node = self.store.get(f"{store_paths.KEPT}/job")
        return decode(BackupStatus, node.data) if node is not None else None

    def end(self) -> None:
        for keeping, link in self.started:
            keeping.stop()
            link.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.end()


def test_a_worker_says_at_once_where_the_data_is_and_waits_for_a_place(world: World) -> None:
    world.commit()
    world.begin()
    eventually("nobody keeps a copy", lambda: world.kept == BackupStatus("job", "n1", 2, 1))
    world.locate("n2")
    eventually("somebody keeps a copy", lambda: world.kept is not None and world.kept.store)
    kept = world.kept
    assert kept is not None
    assert (kept.origin, kept.store, kept.store_url, kept.number, kept.batch) == (
        "n1",
        "n2",
        "http://n2",
        11,
        0,
    )
    assert kept.bytes == kept.sent > 0


def test_what_changes_is_sent_and_what_does_not_is_not(world: World) -> None:
    world.commit()
    world.locate("n2")
    world.begin()
    there = world.nodes["n2"]
    eventually("batch 0 is kept", lambda: world.kept is not None and world.kept.batch == 0)
    assert len(there.manifests) == 1
    world.commit()
    eventually("batch 1 is kept", lambda: world.kept is not None and world.kept.batch == 1)
    assert len(there.manifests) == 2
    assert "forgotten" not in there.events


def test_the_next_snapshot_goes_whole_to_a_new_place_and_the_old_one_forgets_after_that(world: World) -> None:
    world.commit()
    world.locate("n2")
    world.begin()
    eventually("n2 keeps the copy", lambda: world.kept is not None and world.kept.store == "n2")
    world.locate("n3")  # Nothing has changed but the place.
    eventually("n3 keeps the copy", lambda: world.kept is not None and world.kept.store == "n3")
    eventually("the old store forgets", lambda: world.nodes["n2"].events[-1] == "forgotten")
    new = world.nodes["n3"]
    assert new.manifests[0].pieces == world.nodes["n2"].manifests[-1].pieces
    assert {piece.sha256 for piece in new.manifests[0].pieces} == set(new.objects)


def test_a_store_that_is_away_is_tried_again_and_another_place_used_when_there_is_one(
    world: World,
) -> None:
    world.nodes["n2"].trouble = NodeRequestError("away", again=True)
    world.commit()
    world.locate("n2")
    world.begin()
    eventually("the node is asked again", lambda: world.nodes["n2"].asked >= 2)
    eventually(
        "nobody keeps a copy", lambda: world.kept == BackupStatus("job", "n1", 2, 1)
    )  # Nobody has a copy.
    world.locate("n3")
    eventually("n3 keeps the copy", lambda: world.kept is not None and world.kept.store == "n3")
    world.nodes["n2"].trouble = None
    world.commit()
    eventually("batch 1 is kept", lambda: world.kept is not None and world.kept.batch == 1)
    assert not world.nodes["n2"].manifests


def test_a_digest_that_was_found_wrong_is_made_again(world: World) -> None:
    world.commit()
    world.locate("n2")
    keeping = world.begin()
    eventually("batch 0 is kept", lambda: world.kept is not None and world.kept.batch == 0)
    world.nodes["n2"].trouble = NodeRequestError("not what it should be", again=False, status=422)
    world.commit()
    eventually("the node is asked again", lambda: world.nodes["n2"].asked >= 2)
    world.nodes["n2"].trouble = None
    eventually("batch 1 is kept", lambda: world.kept is not None and world.kept.batch == 1)
    assert keeping.finish(5.0)


def test_the_last_batch_is_in_the_last_snapshot(world: World) -> None:
    world.commit()
    world.locate("n2")
    keeping = world.begin()
    eventually("batch 0 is kept", lambda: world.kept is not None and world.kept.batch == 0)
    world.commit()
    assert keeping.finish(5.0)
    assert world.nodes["n2"].manifests[-1].batch == 1


def test_who_ends_without_a_last_snapshot_says_so(world: World) -> None:
    world.nodes["n2"].trouble = NodeRequestError("away", again=True)
    world.locate("n2")
    keeping = world.begin()
    eventually("the node is asked", lambda: world.nodes["n2"].asked >= 1)
    assert not keeping.finish(5.0)


def test_a_job_from_scratch_removes_the_copy_of_what_was_forgotten_first(world: World) -> None:
    world.store.create(
        f"{store_paths.KEPT}/job", encode(BackupStatus("job", "n1", 1, 3, "n2", "http://n2", 9, 40))
    )
    world.commit()
    world.locate("n2")
    world.begin(replace(ASSIGNMENT, fresh=True))
    eventually("batch 0 is kept", lambda: world.kept is not None and world.kept.batch == 0)
    assert world.nodes["n2"].events[:2] == ["forgotten", "sent"]


def test_a_later_workers_word_stands(world: World) -> None:
    later = BackupStatus("job", "n4", 3, 1, "n5", "http://n5", 70, 400)
    world.store.create(f"{store_paths.KEPT}/job", encode(later))
    world.commit()
    world.locate("n2")
    world.begin()
    _, link = world.started[-1]
    eventually("the worker is outdated", lambda: link.outdated)
    assert not link.wait_backup_status(10.0), "it is not what counts"
    assert world.kept == later
    assert "forgotten" not in [*world.nodes["n2"].events, *world.nodes["n3"].events]


def test_a_worker_of_yesterday_has_no_copy_of_its_successor_removed(world: World) -> None:
    later = BackupStatus("job", "n4", 3, 1, "n3", "http://n3", 70, 400)
    world.store.create(f"{store_paths.KEPT}/job", encode(later))
    world.commit()
    world.locate("n2")
    keeping = world.begin()
    _, link = world.started[-1]
    eventually("the worker is outdated", lambda: link.outdated)
    keeping.finish(10.0)
    assert world.nodes["n3"].events == []


def test_a_copy_is_carried_over_by_who_has_the_same_data() -> None:
    known = BackupStatus("job", "n1", 1, 4, "n2", "http://n2", 9, 40, 1000)
    same = initial_backup_status(ASSIGNMENT, "n1", 1, known)
    assert (same.origin, same.revision, same.attempt, same.store, same.number) == ("n1", 2, 1, "n2", 9)
    restored = replace(ASSIGNMENT, node="n3", restore=RestoreSource("n2", "http://n2", 1))
    moved = initial_backup_status(restored, "n3", 1, known)
    assert (moved.origin, moved.store, moved.batch) == ("n3", "n2", 40)
    assert initial_backup_status(replace(ASSIGNMENT, node="n3"), "n3", 1, known).store == ""
    assert initial_backup_status(replace(ASSIGNMENT, fresh=True), "n1", 1, known).store == ""
    assert initial_backup_status(replace(ASSIGNMENT, fresh=True, forget=0), "n1", 2, known).store == "n2"


def test_a_rate_that_is_none_is_told_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert snapshot_clients("t", {"PENSTOCK_SNAPSHOT_RATE": "quick"})("http://n2:1") is not None
    assert "snapshot rate not limited" in caplog.text


def test_a_folder_that_cannot_be_written_is_told_and_tried_again(world: World) -> None:
    blocked = world.home.parent / "cut"
    blocked.write_text("in the way")
    world.commit()
    world.locate("n2")
    world.begin()
    eventually("the worker says what is kept", lambda: world.kept is not None)
    time.sleep(0.05)
    assert not world.nodes["n2"].manifests
    blocked.unlink()
    eventually("a snapshot at the node", lambda: world.nodes["n2"].manifests)
