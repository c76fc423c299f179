"""A cluster on this machine for jobs with replicas: who is where, whose output counts, how to lose nodes."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from benchmarks.failover import LocalCluster, wait
from benchmarks.halves import HalfFailedError
from penstock.errors import ReplicaOutdatedError
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.replica_id import ReplicaId

PORT = 8700
"""Not that of ``penstock up``: another cluster of this machine is left alone."""
_RECENT = 50
"""How many of the last commits say whose output counts most."""


class KSafeCluster(LocalCluster):
    """One master, one ZooKeeper server, and nodes enough to lose some."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._client = httpx.Client(timeout=3.0)

    def up(self, nodes: int) -> None:
        """Start it. Nobody starts anything again that is killed."""
        size = ["--nodes", str(nodes), "--cores", "2", "--memory", "4g"]
        self.penstock("up", *size, "--masters", "1", "--zk", "1", "--port", str(PORT), "--detach")
        self.signal(self.keeper, signal.SIGSTOP)

    def down(self) -> None:
        """End all of it."""
        self._client.close()
        self.signal(self.keeper, signal.SIGCONT)
        self.penstock("down")

    def get(self, path: str) -> Any:
        """Ask the master without starting a process, which would take a core for a second."""
        token = (self.folder / "token").read_text().strip()
        try:
            answer = self._client.get(
                f"http://127.0.0.1:{PORT}/api/v1{path}", headers={"Authorization": f"Bearer {token}"}
            )
        except httpx.HTTPError:
            return {}
        return answer.json() if answer.status_code == 200 else {}

    def is_safe(self, job: str, safe: str) -> bool:
        """Whether a job runs, and its safety is told in words that begin like this."""
        found = self.get(f"/jobs/{job}")
        return found.get("phase") == "RUNNING" and str(found.get("safety", "")).startswith(safe)

    def wait_safe(self, job: str, safe: str) -> None:
        """Wait until it is; tell all that is known if it does not come to that."""
        try:
            wait(lambda: self.is_safe(job, safe), f"{job} is {safe or 'running'}")
        except HalfFailedError:
            print(json.dumps([self.get(f"/jobs/{job}"), self.get("/alarms")], indent=1), file=sys.stderr)
            raise

    def places(self, job: str) -> dict[str, str]:
        """Return by name of a replica the node on which a process of it lives."""
        found = {}
        for folder in sorted(self.folder.glob("nodes/*/instances/*-driver-*")):
            member = folder.name.rpartition("-driver-")[0]
            if ReplicaId.parse(member).job == job and self._processes.alive(folder):
                found[member] = folder.parent.parent.name
        return found

    def busiest(self, job: str, count: int) -> list[str]:
        """Return the nodes that work most: those of the replicas whose output has lately counted most."""
        counted = self._commits(job)
        places = self.places(job)
        members = sorted(places, key=lambda member: (-counted[member], member))
        return [places[member] for member in members[:count]]

    def _commits(self, job: str) -> Counter[str]:
        counted: Counter[str] = Counter()
        agreement = AgreementFolder(self.home / "agreements" / job / "0")
        shared = agreement.shared()
        if shared is None:
            return counted
        for batch in range(max(shared.floor, shared.head - _RECENT), shared.head + 1):
            with suppress(ReplicaOutdatedError):
                commit = agreement.committed(batch)
                counted.update([commit.by] if commit is not None else [])
        return counted

    def lose(self, nodes: list[str]) -> None:
        """Kill every process of some nodes at once."""
        doomed = [folder for node in nodes for folder in (self.daemon(node), *self._instances(node))]
        for folder in doomed:
            self._processes.signal(folder, signal.SIGKILL, family=True)
        for folder in doomed:  # Who was killed may have started somebody a moment before.
            self.kill(folder)

    def _instances(self, node: str) -> list[Path]:
        return sorted((self.folder / "nodes" / node / "instances").glob("*"))


@contextmanager
def k_safe_cluster(home: Path, nodes: int) -> Iterator[KSafeCluster]:
    """A cluster that is ended whatever happens."""
    cluster = KSafeCluster(home)
    cluster.up(nodes)
    try:
        yield cluster
    finally:
        cluster.down()
