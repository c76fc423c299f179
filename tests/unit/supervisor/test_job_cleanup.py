"""A supervisor removes what forgotten jobs have left on its node and in the storage, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from snapshot_cases import upload

from penstock.backups.snapshots.snapshot_manifest import Manifest, SnapshotFile
from penstock.backups.snapshots.snapshot_store import SnapshotStore
from penstock.bundles.blob_store import BlobStore
from penstock.cluster.document_codec import encode
from penstock.cluster.job_documents import Tombstone
from penstock.coord import store_paths
from penstock.keyring import Keyring
from penstock.supervisor.job_cleanup import UNKNOWN_JOB_SECONDS, UNUSED_BLOB, JobCleanup
from penstock.supervisor.node_instances import FolderInstances, NodeSettings
from penstock.testing.fake_processes import FakeProcesses
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore


class _Node:
    """The folders of a node."""

    def __init__(self, root: Path) -> None:
        self.store = MemoryStore(MemoryEnsemble())
        self.folder, self.storage = root / "node", root / "storage"
        self.folder.mkdir()
        node = NodeSettings("n1", "", self.folder, self.storage, root, "", "/")
        self.processes = FakeProcesses()
        self.instances = FolderInstances(node, self.processes, Keyring(b"k" * 32), lambda _: root)
        self.blobs = BlobStore(self.folder / "blobs")
        self.snapshots = SnapshotStore(self.folder / "snapshots", reserve=0)
        self.keeping = JobCleanup(
            self.store,
            self.folder,
            self.storage,
            instances=self.instances,
            blobs=self.blobs,
            snapshots=self.snapshots,
        )

    def instance(self, job: str, revision: int) -> Path:
        folder = self.folder / "instances" / f"{job}-driver-{revision:06}-0001"
        folder.mkdir()
        description = {"job": job, "role": "driver", "revision": revision, "attempt": 1}
        (folder / "instance.json").write_text(json.dumps({**description, "generation": 1, "started": 1.0}))
        return folder

    def bury(self, job: str, revision: int, data: bool = False) -> None:
        self.store.create(f"{store_paths.TOMBSTONES}/{job}", encode(Tombstone(job, revision, data, 1.0)))

    def left(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "instances").iterdir())

    def snapshot(self, job: str, revision: int) -> None:
        name = hashlib.sha256(b"entry").hexdigest()
        upload(self.snapshots, b"entry", 0, 5, name=name, job=job)
        self.snapshots.commit(
            job, Manifest(job, 0, revision, 1, 1, 1.0, (SnapshotFile("ledger/1", name, 5),))
        )


@pytest.fixture
def node(tmp_path: Path) -> _Node:
    return _Node(tmp_path)


def _made(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text("data")
    return folder


def test_folders_of_forgotten_jobs_go_up_to_the_revision_that_was_forgotten(node: _Node) -> None:
    for job, revision in (("gone", 1), ("gone~1", 2), ("gone", 3), ("stays", 1)):
        node.instance(job, revision)
    node.bury("gone", 2)
    node.keeping.step(1000.0)
    assert node.left() == ["gone-driver-000003-0001", "stays-driver-000001-0001"]


def test_folders_that_no_tombstone_tells_of_go_after_a_week_without_their_job(node: _Node) -> None:
    for job in ("known", "unknown"):
        os.utime(node.instance(job, 1), (500.0, 500.0))
    node.store.create(f"{store_paths.JOBS}/known", b"")
    node.keeping.step(500.0 + UNKNOWN_JOB_SECONDS - 1)
    assert len(node.left()) == 2
    node.keeping.step(500.0 + UNKNOWN_JOB_SECONDS + 1)
    assert node.left() == ["known-driver-000001-0001"]


def test_snapshots_of_forgotten_jobs_go_unless_a_later_worker_has_sent_one(node: _Node) -> None:
    for job, revision in (("gone", 3), ("again", 5), ("stays", 1)):
        node.snapshot(job, revision)
    node.bury("gone", 3)
    node.bury("again", 4)
    node.keeping.step(1000.0)
    assert node.snapshots.jobs() == ["again", "stays"]


@pytest.mark.parametrize("data", [False, True])
def test_what_a_job_has_done_goes_only_if_that_was_asked_for(node: _Node, data: bool) -> None:
    jobs = _made(
        node.storage / "cluster-jobs",
        *("gone/000003-0001/ledger", "gone~1/000002-0001/ledger"),
        *("stays/000001-0001/ledger", "gone-too/000001-0001/ledger"),
    )
    agreements = _made(node.storage / "agreements", "gone/0/agreed-0", "stays/0/agreed-0")
    kept = _made(node.folder / "kept", "gone/home/cluster-jobs/gone/000003-0001/ledger", "stays/home")
    node.bury("gone", 3, data)
    node.keeping.step(1000.0)
    gone = set() if data else {"gone", "gone~1"}
    assert {path.name for path in jobs.iterdir()} == {"stays", "gone-too", *gone}
    assert {path.name for path in agreements.iterdir()} == {"stays", *(gone - {"gone~1"})}
    assert {path.name for path in kept.iterdir()} == {"stays", *(gone - {"gone~1"})}


def test_data_that_a_later_job_of_the_name_goes_on_from_stays(node: _Node) -> None:
    jobs = _made(node.storage / "cluster-jobs", "job/000004-0001/ledger")
    agreements = _made(node.storage / "agreements", "job/3/agreed-0", "job/0/agreed-0")
    node.bury("job", 3, data=True)
    node.keeping.step(1000.0)
    assert (jobs / "job" / "000004-0001").is_dir()
    assert [path.name for path in (agreements / "job").iterdir()] == ["3"]


def test_large_bundles_that_the_cluster_does_not_know_go_after_an_hour(node: _Node) -> None:
    names = {}
    for content in (b"known", b"old", b"new"):
        names[content] = hashlib.sha256(content).hexdigest()
        node.blobs.put(names[content], content)
    for content in (b"known", b"old"):
        os.utime(node.folder / "blobs" / names[content], (500.0, 500.0))
    new = (node.folder / "blobs" / names[b"new"]).stat().st_mtime
    node.store.create(f"{store_paths.BUNDLES}/{names[b'known']}", b"")
    node.keeping.step(new + UNUSED_BLOB - 1)
    assert node.blobs.names() == sorted([names[b"known"], names[b"new"]])


def test_a_thousand_short_jobs_leave_the_disk_bounded(node: _Node) -> None:
    for number in range(1000):
        node.instance(f"job{number}", 1)
        if number >= 40:
            node.bury(f"job{number - 40}", 1)
        if number % 100 == 99:
            node.keeping.step(1000.0)
            assert len(node.left()) == 40
