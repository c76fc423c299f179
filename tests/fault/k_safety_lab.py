"""A cluster for jobs with replicas: whose nodes have links that can be cut, whose replicas can be found."""

from __future__ import annotations

import ctypes
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from benchmarks.halves import HalfFailedError
from benchmarks.network import Network
from clusters import Cluster, Daemon, Feeder, check_numbering, free_port
from relays import Relay
from worker_lab import tree_of

from penstock.coord.embedded_zookeeper import EmbeddedZooKeeper
from penstock.errors import LogNotFoundError
from penstock.log import Log, log_folder
from penstock.processes.process_control import OsProcesses
from penstock.record import Record
from penstock.replicas.agreement.replica_catch_up import last_batch
from penstock.replicas.replica_id import ReplicaId
from support.engines import SPARK
from support.waiting import eventually

_CLONE_NEWNET = 0x40000000

JOB = '''
import penstock as ps


class Tally(ps.StatefulTask):
    """Numbers what comes of each key: number n of a key is emitted once, whatever batch it is in."""

    def update(self, key, values, state):
        seen = state or 0
        return seen + len(values), [(key, (seen + n, value)) for n, value in enumerate(values, start=1)]


job = ps.Job("{name}", parallelism=1)
source = job.source("in", ps.LogSource("{name}-in", max_records_per_batch=2_000))
source >> job.task("by_key", lambda r: (r.value % 50, r.value)) >> job.task("tally", Tally()) \\
    >> job.sink("out", ps.LogSink("{name}-out"))
'''


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Let this thread, and what it starts, be in a network namespace."""
    with Path("/proc/thread-self/ns/net").open() as here, Path(f"/var/run/netns/{namespace}").open() as there:
        _enter(there.fileno())
        try:
            yield
        finally:
            _enter(here.fileno())


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class NodeDaemon(Daemon):
    """The supervisor of a node that has a network namespace: all that it starts is there, too."""

    def __init__(self, cluster: Cluster, name: str, arguments: list[str], namespace: str) -> None:
        super().__init__(cluster, "supervisor", name, arguments)
        self._namespace = namespace

    def start(self) -> None:
        with inside(self._namespace):
            super().start()


class Replicas:
    """The replicas of one job on a cluster: where their processes are, how safe the master says they are."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.processes = OsProcesses()

    def submit(self, *options: str, code: str = JOB, safe: str = "k-safe") -> Path:
        """Submit the job, and wait until it is safe and has written something."""
        file = self.write(code)
        before = self.written()
        self.cluster.cli("submit", str(file), "--memory", "1g", "--cores", "1", *options)
        self.wait_safe(safe)
        eventually(f"output of {self.name}", lambda: self.written() > before)
        return file

    def end(self, *options: str) -> None:
        """Kill the job, and wait until it has ended and none of its workers is left."""
        self.cluster.cli("kill", self.name, *options)
        eventually(f"{self.name} has ended", lambda: self.cluster.job(self.name)["phase"] == "ENDED")
        eventually(f"the workers of {self.name} have left", lambda: not self.living())

    def write(self, code: str) -> Path:
        """Write the job's file."""
        file = self.cluster.home / f"{self.name}.py"
        file.write_text(code.format(name=self.name))
        return file

    @property
    def safety(self) -> str:
        """How safe the job is, by the master's words."""
        return str(self.cluster.job(self.name).get("safety", ""))

    def wait_safe(self, safe: str = "k-safe", members: int | None = None) -> None:
        """Wait until the job is safe. The master may speak of what was, so the processes are counted, too."""

        def there() -> bool:
            replicas = self.cluster.job(self.name).get("spec", {}).get("settings", {}).get("replicas", {})
            wanted = members or int(replicas.get("k", 0)) + 1 + bool(replicas.get("warm_standby"))
            return self.safety.startswith(safe) and len(self.living()) == wanted

        try:
            # Each look asks the master and looks for processes: a busy machine has better things to do.
            eventually(f"{self.name} is {safe}", there, every=0.1)
        except AssertionError as error:
            told = self.cluster.job(self.name)
            told.pop("spec", None)
            raise AssertionError(f"{error}: {self.living()} {self.cluster.get('/alarms')} {told}") from error

    def living(self) -> dict[str, tuple[str, Path]]:
        """Return by name of a replica its node and the folder of its newest process that lives."""
        found = {}
        for folder in sorted(self.cluster.folder.glob("nodes/*/instances/*-driver-*"), key=lambda f: f.name):
            member = folder.name.rpartition("-driver-")[0]
            if ReplicaId.parse(member).job == self.name and self.processes.alive(folder):
                found[member] = folder.parents[1].name, folder
        return found

    def nodes(self) -> dict[str, str]:
        """Return the node of each replica that lives."""
        return {member: node for member, (node, _) in self.living().items()}

    def assigned(self, member: str) -> str:
        """Return where the master wants a replica; nothing if nowhere."""
        number = ReplicaId.parse(member).index
        found = self.cluster.job(self.name)["replicas"]
        return next((str(one["node"]) for one in found if one["number"] == number), "")

    def kill(self, *folders: Path) -> None:
        """Kill processes with their families, all at once."""
        for folder in folders:
            self.processes.signal(folder, signal.SIGKILL, family=True)
        for folder in folders:
            self.processes.kill_all(folder)

    def copied(self, before: Path) -> bool:
        """Whether a worker that came after another of the same replica has come in with a copy."""
        member = before.name.rpartition("-driver-")[0]
        folders = self.cluster.folder.glob(f"nodes/*/instances/{member}-driver-*")
        logs = [folder / "log.jsonl" for folder in folders if folder.name > before.name]
        return any('"copied"' in log.read_text() for log in logs if log.exists())

    def batch(self, member: str) -> int:
        """Return the last batch of a replica, -1 if it has done none."""
        return last_batch(self.cluster.home / "cluster-jobs" / member)

    def pause(self, folder: Path) -> Callable[[], None]:
        """Stop a process with its family, unless it has just left; return how it is woken."""
        found = self.processes.find(folder)
        family = tree_of(found.pid) if found is not None else []
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.suspend()

        def wake() -> None:
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

        return wake

    def written(self) -> int:
        """Return how many records have come out."""
        return sum(self.ends())

    def wait_output(self) -> None:
        """Wait until something more has come out."""
        before = self.written()
        eventually(f"more output of {self.name}", lambda: self.written() > before)

    def ends(self) -> list[int]:
        """Return how far each partition of the output goes."""
        try:
            return Log.open(log_folder(f"{self.name}-out", self.cluster.home)).ends()
        except LogNotFoundError:
            return []

    def outputs(self, since: list[int] | None = None) -> list[Record]:
        """Return what has come out, or what of it is behind some ends."""
        ends = self.ends()
        log = Log.open(log_folder(f"{self.name}-out", self.cluster.home))
        return [
            record
            for partition, start in enumerate(since or [0] * len(ends))
            for records in log.read(partition, start)
            for record in records
        ]

    def check_exact(self, feeder: Feeder, since: list[int] | None = None) -> None:
        """See that what has gone in so far comes out once, each key numbered without gap or double."""
        count = feeder.count
        goal = sum(since or ()) + count
        eventually(f"{goal} records are out", lambda: sum(self.ends()) >= goal)

        def complete() -> list[Record]:
            records = self.outputs(since)
            found = Counter(record.value[1] for record in records)
            doubled = {number: times for number, times in found.items() if times > 1}
            assert not doubled, f"{len(doubled)} doubled, for instance {sorted(doubled.items())[:5]}"
            return records if all(number in found for number in range(count)) else []

        records = eventually(f"all of {count} records are out", complete, every=0.5)
        check_numbering(records)


class LinkedCluster(Cluster):
    """A cluster whose nodes have links that can be cut.

    Workers are killed there again and again: one that has run for a second has run well.
    """

    def __init__(self, home: Path, nodes: int, engine: str) -> None:
        super().__init__(home, nodes=nodes, masters=1, servers=1, idle=True, engine=engine)
        self.lab["window"] = 1.0

    def cut(self, node: str) -> None:
        """Let nothing go to and from a node any more."""
        raise NotImplementedError

    def heal(self, node: str) -> None:
        """Undo :meth:`cut`."""
        raise NotImplementedError

    def _supervise(self, number: int, host: str, connect: str) -> list[str]:
        size = ["--cores", str(self.cores), "--memory", "8g", "--storage", str(self.home)]
        return ["--host", host, "--port", str(free_port()), "--connect", connect, *size]


class SpacedCluster(LinkedCluster):
    """Each node is a network namespace; ZooKeeper and the master are in the hub between them."""

    def __init__(self, home: Path, network: Network, nodes: int, engine: str) -> None:
        super().__init__(home, nodes, engine)
        self._network = network
        self.zookeeper = EmbeddedZooKeeper(self.folder / "linked-zookeeper", hosts=[network.address()])

    def add_node(self, number: int) -> Daemon:
        arguments = self._supervise(number, self._network.address(number), self.connect)
        supervisor = NodeDaemon(self, f"n{number}", arguments, self._network.namespace(number))
        self.supervisors[supervisor.name] = supervisor
        supervisor.start()
        return supervisor

    def cut(self, node: str) -> None:
        self._network.cut(int(node[1:]))

    def heal(self, node: str) -> None:
        self._network.heal(int(node[1:]))


class RelayedCluster(LinkedCluster):
    """Where namespaces cannot be made: all that nodes say to others goes to ZooKeeper, by a relay each."""

    def __init__(self, home: Path, nodes: int, engine: str) -> None:
        super().__init__(home, nodes, engine)
        self._relays: dict[str, Relay] = {}

    def add_node(self, number: int) -> Daemon:
        [address] = self.zookeeper.addresses
        relay = self._relays[f"n{number}"] = Relay(address.host, address.client)
        arguments = self._supervise(number, f"127.0.0.{number + 1}", relay.address)
        supervisor = Daemon(self, "supervisor", f"n{number}", arguments)
        self.supervisors[supervisor.name] = supervisor
        supervisor.start()
        return supervisor

    def cut(self, node: str) -> None:
        self._relays[node].cut()

    def heal(self, node: str) -> None:
        self._relays[node].heal()

    def close(self) -> None:
        super().close()
        for relay in self._relays.values():
            relay.close()


@contextmanager
def linked_cluster(
    home: Path, nodes: int, *, engine: str = SPARK, spaces: bool = True
) -> Iterator[LinkedCluster]:
    """A cluster with links that can be cut: by namespaces, unless they cannot be made here.

    The thread that has one with namespaces is in its hub until the cluster is ended.
    """
    with ExitStack() as stack:
        network = None
        if spaces:
            with suppress(HalfFailedError):
                network = stack.enter_context(Network(nodes))
        if network is not None:
            stack.enter_context(inside(network.namespace()))
        cluster = (
            SpacedCluster(home, network, nodes, engine) if network else RelayedCluster(home, nodes, engine)
        )
        stack.callback(cluster.close)
        cluster.start()
        yield cluster


def alarms_of(cluster: Cluster, kind: str) -> list[dict[str, Any]]:
    """Return the alarms of one kind."""
    return [alarm for alarm in cluster.get("/alarms") if alarm["kind"] == kind]
