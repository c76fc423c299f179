"""The control plane on a real ZooKeeper server: processor time of a leader and of one supervisor.

Each of the two is a process of its own with its real loop; the other supervisors and all workers are
simulated by this process. ``python -m benchmarks.control_plane_zookeeper NODES JOBS SECONDS`` prints the
figures as JSON, on older revisions of the code as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks.control_plane_case import REPORT_SECONDS, TOLD_SECONDS, Cluster
from penstock.cluster.document_codec import encode
from penstock.coord import store_paths
from penstock.coord.embedded_zookeeper import EmbeddedZooKeeper
from penstock.coord.zookeeper_store import ZooKeeperStore

PASSWORD = "only for this run"


class ServedCluster(Cluster):
    """A cluster whose documents are on a server."""

    def __init__(self, nodes: int, jobs: int, work: Path, connect: str) -> None:
        self._connect = connect
        super().__init__(nodes, jobs, work)

    def _fill(self) -> None:
        self.writer = ZooKeeperStore.connect(self._connect, PASSWORD, session_seconds=60.0)  # type: ignore[assignment]
        super()._fill()

    def keep_busy(self, seconds: float) -> float:
        """Write what supervisors and workers write; return the largest delay of a write in seconds."""
        jobs, nodes = list(self.jobs), self.nodes[1:]
        told = reported = 0
        began, delay, beaten = time.time(), 0.0, 0.0
        while (passed := time.time() - began) < seconds:
            self.now = time.time()
            due_jobs = int(passed / TOLD_SECONDS * len(jobs))
            due_nodes = int(passed / REPORT_SECONDS * len(nodes))
            for job in (jobs[number % len(jobs)] for number in range(told, due_jobs)):
                self.writer.set(store_paths.worker(job, 1, 1), encode(self.info(job)))
            for node in (nodes[number % len(nodes)] for number in range(reported, due_nodes)):
                self.writer.set(f"{store_paths.REPORTS}/{node}", encode(self.report(node)))
            told, reported = due_jobs, due_nodes
            if self.now - beaten >= 1.0 and (self.work / "instances").exists():
                if len(list((self.work / "instances").iterdir())) >= len(self.here):
                    self.beat()
                beaten = self.now
            delay = max(delay, time.time() - self.now)
            time.sleep(0.02)
        return delay


def serve(role: str, connect: str, nodes: int, jobs: int, work: Path) -> None:
    """Be the leader or the first supervisor until the process is ended."""
    cluster = Cluster(nodes, jobs, work)
    cluster.ensemble.stop()
    store = ZooKeeperStore.connect(connect, PASSWORD)
    daemon = cluster.master(store=store) if role == "leader" else cluster.supervisor(store=store)
    daemon._clock = time.time
    daemon.run(threading.Event())


def measure(nodes: int, jobs: int, seconds: float, work: Path) -> dict[str, float]:
    """Return the figures of one size."""
    servers = EmbeddedZooKeeper(work / "zookeeper")
    servers.start()
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        servers.wait_ready()
        connect = servers.connect_string
        cluster = ServedCluster(nodes, jobs, work / "node", connect)
        for role in ("leader", "supervisor"):
            command = [sys.executable, "-m", "benchmarks.control_plane_zookeeper", role, connect]
            command += [str(nodes), str(jobs), str(work / "node")]
            processes[role] = subprocess.Popen(command)
            cluster.keep_busy(8.0)
        watched = {role: psutil.Process(process.pid) for role, process in processes.items()}
        before = {role: sum(process.cpu_times()[:2]) for role, process in watched.items()}
        began = time.monotonic()
        delay = cluster.keep_busy(seconds)
        passed = time.monotonic() - began
        found = {
            f"{role}, share of a core": (sum(process.cpu_times()[:2]) - before[role]) / passed
            for role, process in watched.items()
        }
        cluster.writer.close()
        return {**found, "largest delay of a write, seconds": delay}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
        servers.stop()


def main(arguments: Sequence[str]) -> int:
    """Measure, or be one of the processes that are measured."""
    if arguments[0] in ("leader", "supervisor"):
        role, connect, nodes, jobs, work = arguments
        serve(role, connect, int(nodes), int(jobs), Path(work))
        return 0
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as work:
        (Path(work) / "node").mkdir()
        found = measure(int(arguments[0]), int(arguments[1]), float(arguments[2]), Path(work))
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
