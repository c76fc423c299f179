"""Nodes with real supervisors and no master: what a master would decide, a test writes down itself."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from clusters import JOB, Cluster, check_numbering, committed, length, records_in, written

from penstock.backups.snapshots.snapshot_manifest import Manifest
from penstock.backups.snapshots.snapshot_restore import Restored, restored
from penstock.backups.snapshots.snapshot_store import SnapshotStore
from penstock.bundles.bundle_packer import pack
from penstock.bundles.bundle_signature import sha256_of, sign
from penstock.bundles.bundle_store import BundleStore
from penstock.cluster.assignment_documents import BackupLocation, BackupStatus, RestoreSource
from penstock.cluster.document_codec import decode, encode
from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.worker_documents import WorkerInfo
from penstock.coord import store_paths
from penstock.coord.zookeeper_store import ZooKeeperStore
from penstock.daemon.worker_folder import WorkerExit, read_exit
from penstock.keyring import signing_key
from penstock.log import Log, log_folder
from penstock.record import Record
from support.settings import make_assignment
from support.waiting import DEADLINE, eventually

NAME = "held"
T = TypeVar("T")


class KeptDocuments:
    """What a cluster's store and its disks have of the job."""

    def __init__(self, cluster: Cluster, store: ZooKeeperStore) -> None:
        self.cluster = cluster
        self.store = store

    def _get(self, kind: type[T], path: str) -> T | None:
        node = self.store.get(path)
        return decode(kind, node.data) if node is not None else None

    def url(self, node: str) -> str:
        """Return where a node's supervisor answers."""
        info = self._get(NodeInfo, f"{store_paths.NODES}/{node}")
        assert info is not None
        return info.url

    @property
    def location(self) -> BackupLocation | None:
        """Who keeps a copy, and who runs the job next."""
        return self._get(BackupLocation, f"{store_paths.LOCATIONS}/{NAME}")

    @property
    def kept(self) -> BackupStatus | None:
        """What the job's worker says of its data."""
        return self._get(BackupStatus, f"{store_paths.KEPT}/{NAME}")

    def node_folder(self, node: str) -> Path:
        """Return the folder of a node."""
        return self.cluster.folder / "nodes" / node

    def home(self, node: str) -> Path:
        """Return the job's home on a node."""
        return self.node_folder(node) / "kept" / NAME / "home"

    def wait_kept(self, condition: Callable[[BackupStatus], bool], what: str) -> BackupStatus:
        """Wait until something can be said of the job's data."""

        def found() -> BackupStatus | None:
            kept = self.kept
            return kept if kept is not None and condition(kept) else None

        return eventually(what, found)


class KeptLab(KeptDocuments):
    """Three nodes and one job whose data is with its node."""

    def start(self) -> None:
        """Start the supervisors, and store the job's code."""
        for number in range(1, 4):
            self.cluster.add_node(number)
        eventually("all nodes are there", lambda: len(self.store.children(store_paths.NODES)) == 3)
        code = self.cluster.home / "code"
        code.mkdir()
        (code / "held.py").write_text(JOB.format(name=NAME))
        bundle = pack(code, entry="held.py")
        self.bundle = sha256_of(bundle)
        key = signing_key(self.cluster.keyring.token)
        BundleStore(self.store, key).put(bundle, sign(bundle, key), now=time.time())

    def _put(self, path: str, document: object) -> None:
        if self.store.get(path) is None:
            self.store.create(path, encode(document))
        else:
            self.store.set(path, encode(document))

    def locate(self, store: str, redeploy: str) -> None:
        """Say who keeps a copy, and who runs the job next."""
        self._put(f"{store_paths.LOCATIONS}/{NAME}", BackupLocation(NAME, store, self.url(store), redeploy))

    def assign(self, node: str, revision: int, restore: RestoreSource | None = None) -> None:
        """Say who runs the job."""
        assignment = make_assignment(
            NAME,
            1,
            revision,
            1,
            self.bundle,
            "held.py",
            node,
            1,
            1 << 30,
            data_location="node",
            restore=restore,
        )
        self._put(f"{store_paths.ASSIGNMENTS}/{NAME}", assignment)

    def restored(self, node: str) -> Restored | None:
        """Return what the home of a node was made from."""
        return restored(self.home(node))

    def snapshots(self, node: str) -> tuple[Manifest, ...]:
        """Return the snapshots that a node keeps, newest first."""
        return SnapshotStore(self.node_folder(node) / "snapshots").manifests(NAME).manifests

    def exits(self, node: str) -> list[WorkerExit]:
        """Return how workers of a node have ended."""
        folders = sorted((self.node_folder(node) / "instances").glob(f"{NAME}-driver-*"))
        return [left for folder in folders if (left := read_exit(folder)) is not None]

    def words(self, node: str, event: str) -> list[dict[str, object]]:
        """Return what workers of a node have logged of something."""
        lines = [
            json.loads(line)
            for file in sorted((self.node_folder(node) / "instances").glob(f"{NAME}-driver-*/log.jsonl"))
            for line in file.read_text().splitlines(keepends=True)
            if line.endswith("\n")  # Else it is being written.
        ]
        return [line for line in lines if line.get("event") == event or line.get("message") == event]

    def wait_running(self, revision: int, attempt: int = 1) -> None:
        """Wait until a worker runs the job."""
        path = store_paths.worker(NAME, revision, attempt)
        eventually(
            f"worker {revision} runs",
            lambda: (worker := self._get(WorkerInfo, path)) and worker.phase == "running",
        )

    def wait_batches(self, node: str, count: int = 3) -> None:
        """Wait until the job has done some more on a node."""
        goal = committed(self.home(node), NAME) + count
        eventually(f"{count} batches on {node}", lambda: committed(self.home(node), NAME) >= goal)

    def wait_snapshots(self, count: int = 3) -> BackupStatus:
        """Wait until some more snapshots are whole."""
        known = self.kept
        goal = (known.number if known else 0) + count
        return self.wait_kept(lambda kept: kept.store != "" and kept.number >= goal, "snapshots")

    def wait_covered(self, node: str) -> BackupStatus:
        """Wait until all that has come so far is in a snapshot, and processed in it."""
        home = self.home(node)
        eventually("all is processed", lambda: written(home, NAME) == length(home, f"{NAME}-in"))
        batch = committed(self.home(node), NAME) - 1
        return self.wait_kept(lambda kept: kept.batch >= batch, "a snapshot of all")


@contextmanager
def documents_of(cluster: Cluster) -> Iterator[KeptDocuments]:
    """Read and write what the store of a cluster has."""
    store = ZooKeeperStore.connect(cluster.connect, cluster.keyring.store_password, timeout=60.0)
    try:
        yield KeptDocuments(cluster, store)
    finally:
        store.close()


@contextmanager
def running_lab(home: Path, engine: str) -> Iterator[KeptLab]:
    """A lab that is ended whatever happens."""
    cluster = Cluster(home, masters=0, servers=1, engine=engine)
    try:
        cluster.zookeeper.start()
        cluster.zookeeper.wait_ready(timeout=DEADLINE)
        with documents_of(cluster) as documents:
            lab = KeptLab(cluster, documents.store)
            lab.start()
            yield lab
    finally:
        cluster.close()


class Feeder:
    """Appends numbers to the job's log on a node, and remembers when."""

    def __init__(self, home: Path, first: int, step: int = 50) -> None:
        folder = log_folder(f"{NAME}-in", home)
        self._log = Log.open(folder) if folder.exists() else Log.create(folder, partitions=2)
        self._next, self._step = first, step
        self._fed: list[tuple[float, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def _feed(self) -> None:
        while not self._stop.wait(0.1):
            self.feed(self._step)

    def feed(self, count: int) -> None:
        """Append some numbers now."""
        self._log.append([Record(None, self._next + n) for n in range(count)])
        self._next += count
        self._fed.append((time.time(), count))

    def before(self, moment: float) -> int:
        """How many numbers were in the log at a moment."""
        return sum(count for at, count in self._fed if at <= moment)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def inputs(home: Path) -> Counter[int]:
    """Return the numbers that a home's input has."""
    return Counter(record.value for record in records_in(home, f"{NAME}-in"))


def outputs(home: Path) -> Counter[int]:
    """Return the numbers that have come out."""
    return Counter(record.value[1] for record in records_in(home, f"{NAME}-out"))


def check_exact(home: Path) -> None:
    """See that all input comes out once, numbered by key without gap or double."""
    eventually("all is processed", lambda: written(home, NAME) >= length(home, f"{NAME}-in"))
    assert outputs(home) == inputs(home)
    assert set(inputs(home).values()) == {1}
    check_numbering(records_in(home, f"{NAME}-out"))
