"""One loss of a node and the recovery from it: run in the hub of a network by ``recovery_by_place``.

There is no master: what it would decide is written down here, so that the time it takes to find a node lost
is not measured. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.halves import HalfFailedError
from penstock.backups.snapshots.snapshot_restore import restored
from penstock.bundles.bundle_packer import pack
from penstock.bundles.bundle_signature import sha256_of, sign
from penstock.bundles.bundle_store import BundleStore
from penstock.cluster.assignment_documents import Assignment, BackupLocation, BackupStatus, RestoreSource
from penstock.cluster.document_codec import decode, encode
from penstock.cluster.node_documents import NodeInfo
from penstock.coord import store_paths
from penstock.coord.embedded_zookeeper import EmbeddedZooKeeper
from penstock.coord.zookeeper_store import ZooKeeperStore
from penstock.job_settings import JobSettings, Resources
from penstock.keyring import open_keyring, signing_key
from penstock.log import Log, log_folder
from penstock.processes.process_control import OsProcesses
from penstock.record import Record

DEADLINE = 240.0
PORT = 7211
NAME = "place"
JOB = """
import os
import time

import penstock as ps


def length(record):
    while os.path.exists({hold!r}):  # Until its node is lost, it does not come to what it is given now.
        time.sleep(0.01)
    return len(record.value)


job = ps.Job("place", parallelism=1)
job.source("in", ps.LogSource("in")) >> job.task("length", length) >> job.sink("out", ps.LogSink("out"))
"""

T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """Where servers are, which of them has the copy, and which runs the job in the end."""

    work: str
    hub: str
    namespaces: dict[str, str]
    addresses: dict[str, str]
    redeploy: str
    bytes: int


class Cluster:
    """ZooKeeper in the hub, and a supervisor on every server."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.home = Path(case.work) / "home"
        self.folder = self.home / "cluster"
        self.keyring = open_keyring(self.folder, create=True)
        self.zookeeper = EmbeddedZooKeeper(self.folder / "zookeeper", hosts=[case.hub])
        self.supervisors: dict[str, subprocess.Popen[bytes]] = {}
        self._processes = OsProcesses()

    def start(self) -> None:
        """Start everything, and wait until it is there."""
        self.zookeeper.start()
        self.zookeeper.wait_ready()
        connect = self.zookeeper.connect_string
        self.store = ZooKeeperStore.connect(connect, self.keyring.store_password)
        for name, namespace in self.case.namespaces.items():
            place = ["--host", self.case.addresses[name], "--port", str(PORT), "--connect", connect]
            has = ["--cores", "2", "--memory", "4g", "--storage", str(self.home)]
            penstock = [sys.executable, "-m", "penstock.cli.main", "supervisor", "--name", name]
            with (Path(self.case.work) / f"{name}.txt").open("wb") as output:
                self.supervisors[name] = subprocess.Popen(
                    ["ip", "netns", "exec", namespace, *penstock, *place, *has],
                    env={**os.environ, "PENSTOCK_HOME": str(self.home)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
        servers = len(self.case.namespaces)
        until(lambda: len(self.store.children(store_paths.NODES)) == servers, "all supervisors")

    def close(self) -> None:
        """End every process."""
        for name in self.supervisors:
            self.kill(name)
        self.zookeeper.stop()

    def kill(self, name: str) -> None:
        """Kill everything on a server."""
        self.supervisors[name].kill()
        self.supervisors[name].wait()
        for folder in (self.folder / "nodes" / name / "instances").glob("*"):
            self._processes.kill_all(folder)

    def end_sessions(self) -> None:
        """Take back the places of workers that were killed: a master acts when their sessions have ended."""
        for worker in self.store.children(f"{store_paths.WORKERS}/{NAME}"):
            self.store.delete(f"{store_paths.WORKERS}/{NAME}/{worker}")

    def put(self, path: str, document: object) -> None:
        """Write a document."""
        if self.store.get(path) is None:
            self.store.create(path, encode(document))
        else:
            self.store.set(path, encode(document))

    def kept(self) -> BackupStatus | None:
        """Return what the job's worker says of its data."""
        node = self.store.get(f"{store_paths.KEPT}/{NAME}")
        return decode(BackupStatus, node.data) if node is not None else None

    def url(self, name: str) -> str:
        """Return where a supervisor answers."""
        node = self.store.get(f"{store_paths.NODES}/{name}")
        assert node is not None
        return decode(NodeInfo, node.data).url

    def data(self, name: str) -> Path:
        """Return the job's home on a server."""
        return self.folder / "nodes" / name / "kept" / NAME / "home"

    def spark_up(self, name: str) -> float:
        """Return when Spark was up on a server, by its worker's log."""
        *_, log = sorted((self.folder / "nodes" / name / "instances").glob("*/log.jsonl"))
        lines = map(json.loads, log.read_text().splitlines())
        [at] = [line["timestamp"] for line in lines if line["event"] == "spark up"]
        return datetime.fromisoformat(at).timestamp()

    def add_code(self, hold: Path) -> str:
        """Store the job's code, and return its name."""
        code = Path(self.case.work) / "code"
        code.mkdir()
        (code / "place.py").write_text(JOB.format(hold=str(hold)))
        bundle = pack(code, entry="place.py")
        key = signing_key(self.keyring.token)
        BundleStore(self.store, key).put(bundle, sign(bundle, key), now=time.time())
        return sha256_of(bundle)


def until(condition: Callable[[], T | None], what: str) -> T:
    """Wait until something is so."""
    deadline = time.monotonic() + DEADLINE
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise HalfFailedError(f"not within {DEADLINE:.0f} s: {what}")
        time.sleep(0.02)
    return found


def records(total: int, size: int = 500) -> list[Record]:
    """Return records of so many bytes, which cannot be compressed."""
    source = random.Random(total)
    return [Record(None, source.randbytes(size)) for _ in range(total // size)]


def came_out(home: Path) -> int:
    """How many records the job has written."""
    folder = log_folder("out", home)
    return sum(Log.open(folder).ends()) if (folder / "log.json").exists() else 0


def moved(namespace: str) -> int:
    """How many bytes have come to a server and gone from it, as its interface counts them."""
    command = ["ip", "-n", namespace, "-j", "-s", "link", "show", "eth0"]
    [link] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return int(link["stats64"]["rx"]["bytes"]) + int(link["stats64"]["tx"]["bytes"])


def run(case: Case, cluster: Cluster) -> dict[str, Any]:
    """Lose server 1, whose data server 2 has a copy of, and recover."""
    hold = Path(case.work) / "hold"
    bundle = cluster.add_code(hold)
    source = Log.create(log_folder("in", cluster.data("s1")))

    def assign(node: str, revision: int, restore: RestoreSource | None = None) -> None:
        settings = JobSettings(Resources(memory=1 << 30), data_location="node")
        place = Assignment(NAME, 1, revision, 1, bundle, "place.py", node, settings, restore=restore)
        cluster.put(f"{store_paths.ASSIGNMENTS}/{NAME}", place)

    cluster.put(
        f"{store_paths.LOCATIONS}/{NAME}", BackupLocation(NAME, "s2", cluster.url("s2"), case.redeploy)
    )
    source.append(records(50_000))
    assign("s1", 1)
    first = source.end(0)
    until(lambda: came_out(cluster.data("s1")) == first, "a first batch")
    # What comes from now on is after the last snapshot of the state, and is only copied.
    hold.touch()
    source.append(records(case.bytes))
    fed = time.time()
    until(lambda: (kept := cluster.kept()) and kept.store == "s2" and kept.at > fed, "a copy of all")
    before = moved(case.namespaces[case.redeploy])

    killed, killed_at = time.monotonic(), time.time()
    cluster.kill("s1")
    cluster.end_sessions()
    hold.unlink()
    cluster.store.delete(f"{store_paths.LOCATIONS}/{NAME}")  # It shall recover, not be copied on.
    assign(case.redeploy, 2, RestoreSource("s2", cluster.url("s2"), 1))
    home = cluster.data(case.redeploy)
    until(lambda: restored(home), "restored")
    has_data = time.monotonic() - killed
    until(lambda: came_out(home) == source.end(0), "all is processed")
    seconds = time.monotonic() - killed
    made = restored(home)
    assert made is not None
    spark_after = cluster.spark_up(case.redeploy) - killed_at
    return {
        "seconds": seconds,
        "restored_after": has_data,
        "spark_after": spark_after,
        "without_spark": has_data + seconds - max(has_data, spark_after),
        "moved": moved(case.namespaces[case.redeploy]) - before,
        "fetched": made.bytes_moved,
        "records": source.end(0) - first,
    }


def main() -> int:
    """Run the case that the first argument describes."""
    case = Case(**json.loads(sys.argv[1]))
    cluster = Cluster(case)
    try:
        cluster.start()
        print(json.dumps(run(case, cluster)))
    except HalfFailedError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        cluster.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
