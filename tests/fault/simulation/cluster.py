"""A simulated cluster from its first event to its last, and what must hold when faults have ended."""

from __future__ import annotations

from dataclasses import replace

from without_code import AnyBundle, NoLogs

from penstock.cluster.assignment_documents import Assignment, BackupStatus
from penstock.cluster.cluster_state import Rules
from penstock.cluster.document_codec import decode
from penstock.cluster.job_documents import JobSpec, JobStatus
from penstock.cluster.node_documents import MasterInfo
from penstock.cluster.worker_supervision import slot_role
from penstock.coord import store_paths
from penstock.master.cluster_service import ClusterService
from penstock.master.master import Master, MasterSettings
from penstock.replicas.decisions.replica_set import (
    ReplicaSpec,
    has_warm_standby,
    is_replicated,
    nodes_of_other_replicas,
    nodes_used,
    replica_count,
    replica_specs,
)
from penstock.replicas.decisions.replica_state import ReplicaSafety
from penstock.replicas.replica_id import ReplicaId
from simulation.actors import Actor
from simulation.clients import Clients
from simulation.faults import Faults
from simulation.nodes import PATIENCE, Machine
from simulation.storage import Storage
from simulation.watching import GRACE, Witness
from simulation.worker import Worker
from simulation.world import REMEMBERED, START, InvariantError, UnsettledError, World

MASTERS = 3
NODES = 4
CORES = 12
"""Enough for all jobs on one node: that a job waits for room is not what is looked for here."""
SCARCE = ((2, 5 << 30), (2, 5 << 30), (3, 5 << 30), (4, 4 << 30))
"""Cores and memory of small nodes: what three jobs ask for often fits nowhere."""
FAULT_SECONDS = 150.0
SETTLE_SECONDS = 120.0
"""Within this time after the last fault all is as it is wanted. It is made of: a pause or a cut that has just
begun (18 s), a session (6 s), the grace for a node (4 s), a hung worker found (15 s), five starts of faulty
code with their back-off (5 · 6 s + 8 s), the start of the code before it (6 s), a predecessor that does not
stop (30 s)."""
QUIET_SECONDS = 10.0


class MasterActor(Actor):
    """A real master, and what users can ask of it."""

    def __init__(self, world: World, name: str, brakes: bool) -> None:
        self._brakes = brakes
        """Whether repeated assignments back off. Where they do not, a contradiction shows at once."""
        self.master: Master | None = None
        self.service: ClusterService | None = None
        super().__init__(world, name, 2.0)

    @property
    def answers(self) -> bool:
        """Whether it can be asked."""
        return self.alive and not self.frozen and self.service is not None

    def step(self) -> None:
        """Do as the real one does in its loop."""
        if self.master is None:
            self._open()
        assert self.master is not None
        self.master._wake.clear()
        self.master.step(self.world.now)

    def woken(self) -> bool:
        """Whether the master wants to look again at once."""
        return self.master is not None and self.master._wake.is_set()

    def _open(self) -> None:
        def clock() -> float:
            return self.world.now

        info = MasterInfo(self.name, self.name, 1, self.world.now, "simulated")
        rules = Rules(node_grace=GRACE, failures=PATIENCE.failures)
        if not self._brakes:
            rules = replace(rules, free_repeats=1 << 30)
        self.master = Master(self.connect(), info, settings=MasterSettings(rules=rules), clock=clock)
        self.service = ClusterService(self.master, AnyBundle(), NoLogs(), clock)


class Cluster:
    """All of it. ``run`` raises InvariantError for the first thing that must not be.

    In a scarce one nodes are small: jobs wait for room, and changes cannot be placed.
    """

    def __init__(self, seed: int, remembered: int | None = REMEMBERED, *, scarce: bool = False) -> None:
        self.scarce = scarce
        self._brakes = seed % 3 == 0
        self.world = world = World(seed, remembered)
        self.witness = Witness(world, self._believed)
        world.ensemble.tree = self.witness.tree
        self.storage: Storage[Worker] = Storage()
        self.machines = {
            f"n{number + 1}": Machine(world, self.storage, f"n{number + 1}", *self._size(number))
            for number in range(NODES)
        }
        self.storage.promised = self.witness.promised
        self.storage.up = lambda name: self.machines[name].up
        names = [f"m{number + 1}" for number in range(MASTERS)]
        self._masters = {name: MasterActor(world, name, self._brakes) for name in names}
        self.clients = Clients(self)
        self.faults = Faults(self)
        self._returning: set[str] = set()
        self._lost: set[str] = set()
        world.after(1.0, self._repair)

    def _size(self, number: int) -> tuple[int, int]:
        return SCARCE[number % len(SCARCE)] if self.scarce else (CORES, 64 << 30)

    def run(self) -> None:
        """Break things for a while, then look whether all comes to rest as it should."""
        world = self.world
        world.run(START + FAULT_SECONDS)
        self._end_faults()
        until = START + FAULT_SECONDS + SETTLE_SECONDS
        while not self._at_rest(last_call=world.now >= until):
            pass

    def _end_faults(self) -> None:
        """From now on nothing breaks. A machine or a master may have just fallen for ever."""
        world = self.world
        if world.chance(0.5):
            name = world.random.choice(sorted(self.machines))
            self._returning.add(name)
            self._lost.add(name)
            self.machines[name].fall()
        if world.chance(0.5):
            name = world.random.choice(sorted(self._masters))
            self._returning.add(name)
            self._lost.add(name)
            self._masters[name].crash("for ever")
        world.faulty = False
        world.tell("world", f"faults end; {sorted(self._lost)} will not return")

    def _at_rest(self, last_call: bool) -> bool:
        """Whether all is as it should be, and stays so while nobody does anything about it."""
        try:
            self._check_settled()
            before = self._acts()
            self.world.run(self.world.now + QUIET_SECONDS)
            self._check_settled()
            if self._acts() != before:
                raise UnsettledError(f"the leader has no rest: {self._acts() - before} writes")
        except UnsettledError:
            if last_call:
                raise
            self.world.run(self.world.now + QUIET_SECONDS)
            return False
        return True

    def _acts(self) -> int:
        """Return how much the leader has done. That a worker dies and starts is said and is no deed.

        Where there is room, faulty code is given up in the end; where a change cannot be placed it is not.
        """
        return self.witness.leader_writes - (self.witness.statuses_said if self.scarce else 0)

    def masters(self) -> list[MasterActor]:
        """Return all masters, also those that are down."""
        return list(self._masters.values())

    def up(self) -> list[Machine]:
        """Return the machines that are up; all of them when none is, so that there is one to choose."""
        return [machine for machine in self.machines.values() if machine.up] or list(self.machines.values())

    def workers(self, job: str = "") -> list[Worker]:
        """Return the living workers of a job or a replica, or of all."""
        names = [job] if job else sorted({name for name, _ in self.storage.folders})
        machines = list(self.machines.values())
        return [worker for name in names for machine in machines for worker in machine.workers(name)]

    def _believed(self, session: int) -> int | None:
        for actor in self._masters.values():
            if actor.session_id == session and actor.master is not None and actor.master.epoch is not None:
                return actor.master.epoch.number
        return None

    def _repair(self) -> None:
        """Bring back what is down, some time later."""
        world = self.world
        world.after(1.0, self._repair)
        for name, actor in self._masters.items():
            if not actor.alive and name not in self._returning:
                self._return(name, world.random.uniform(0.5, 20.0))
        for name, machine in self.machines.items():
            down = not machine.up or machine.supervisor is None or not machine.supervisor.alive
            if down and name not in self._returning:
                self._return(name, world.random.uniform(0.5, 20.0 if machine.up else 60.0))

    def _return(self, name: str, seconds: float) -> None:
        # What falls near the end may stay down: the others must do.
        if not self.world.faulty:
            seconds = min(seconds, 5.0)
        self._returning.add(name)
        self.world.after(seconds, lambda: self._start(name))

    def _start(self, name: str) -> None:
        if name in self._lost:
            return
        self._returning.discard(name)
        if name in self.machines:
            self.machines[name].boot()
        else:
            self._masters[name] = MasterActor(self.world, name, self._brakes)

    def _check_settled(self) -> None:
        leaders = [actor for actor in self.masters() if actor.alive and actor.master and actor.master.epoch]
        if len(leaders) != 1 or self._believed(leaders[0].session_id) != self.witness.epoch:
            raise UnsettledError(f"there is not one leader: {[leader.name for leader in leaders]}")
        for name in sorted(self.witness.specs):
            self._check_job(self.witness.specs[name][-1])
        for name in sorted({name for name, _ in self.storage.folders}):
            self._check_scratch(name)
        self._check_capacity()

    def _check_scratch(self, name: str) -> None:
        """See that a job that was to begin from scratch did so, and only once.

        One that was lost with its node before it had begun leaves nothing, and the next begins again. One
        that took an unused folder on another node, and left because newer data was elsewhere, did nothing.
        """
        unused = self.storage.unused.get(name, set())
        begun = self.witness.begun.get(ReplicaId.parse(name).job, [])
        takeovers = self.storage.takeovers.get(name, [])
        due = again = False
        for (after, fresh), (until, _) in zip(begun, [*begun[1:], (1 << 30, False)], strict=True):
            due = due or fresh
            for revision, emptied in takeovers:
                if revision in unused and (name, revision) not in self.storage.begun:
                    if after < revision <= until and emptied and due:
                        due, again = (
                            False,
                            True,
                        )  # The next finds that done, or is elsewhere and does it again.
                    continue
                if after < revision <= until:
                    if emptied != due and not (emptied and again):
                        raise InvariantError(f"{name} from scratch: {begun}, {takeovers}")
                    again = (emptied or again) and (name, revision) not in self.storage.begun
                    due = False

    def _check_job(self, spec: JobSpec) -> None:
        name = spec.name
        group = [worker for worker in self.workers() if worker.info.replica.job == name]
        told = [f"{worker.name} {worker.phase}" for worker in group]
        assigned = {replica for replica in self.witness.current if replica.job == name}
        status = self.witness.statuses[name]
        if status.phase in ("ENDED", "FAILED"):
            if group or assigned:
                raise UnsettledError(f"{name} is {status.phase} and has {told}, {assigned}")
            if status.phase == "ENDED" and spec.wanted == "running" and spec.settings.until is None:
                raise UnsettledError(f"{name} has ended, and nobody has asked for it: {status}")
            return
        if self._waits_rightly(spec, status, bool(assigned)):
            return
        if spec.wanted == "ended":
            raise UnsettledError(f"{name} shall end and has not: {status}, {told}")
        up = [one for one in sorted(self.machines) if self.machines[one].up]
        able = [
            one for one in up if not spec.settings.placement.nodes or one in spec.settings.placement.nodes
        ]
        if not able:
            return
        replicas = replica_specs(spec)
        if not assigned <= {replica.id for replica in replicas}:
            raise UnsettledError(f"{name} has {assigned}, and wanted is {spec}")
        for replica in replicas:
            if not self._has_no_place(replica, able):
                self._check_replica(replica, able, status)
        self._check_safety(spec, status, group)

    def _waits_rightly(self, spec: JobSpec, status: JobStatus, assigned: bool) -> bool:
        """Whether a job waits for its data, or for room, and there is none."""
        if status.phase != "PENDING":
            return False
        if self._lacks_data(spec.name) or self._may_not_use_data(spec):
            return True
        return self.scarce and (
            assigned or not self._fits(replica_specs(spec)[0], self._node_with_data(spec))
        )

    def _check_capacity(self) -> None:
        for name, free in self._free().items():
            if self.machines[name].up and min(free) < 0:
                on = [one for one in self.witness.current.values() if name in nodes_used(one)]
                raise UnsettledError(f"{name} has more than it can take: {free}, {on}")

    def _free(self, without: ReplicaId | None = None) -> dict[str, tuple[int, int]]:
        """Return the cores and the memory of each node that nothing is assigned to, but for one replica's."""
        free = {name: (machine.cores, machine.memory) for name, machine in self.machines.items()}
        for replica, assignment in self.witness.current.items():
            if replica == without:
                continue
            for node, cores, memory in (
                (assignment.node, assignment.settings.resources.cores, assignment.settings.resources.memory),
                *((slot.node, slot.cores, slot.memory) for slot in assignment.executors),
            ):
                free[node] = (free[node][0] - cores, free[node][1] - memory)
        return free

    def _fits(self, replica: ReplicaSpec, only: str = "") -> bool:
        """Whether some node, or a certain one, could take a driver and one executor of a replica together."""
        spec, asked = replica.spec, replica.spec.settings.resources
        cores, memory = asked.cores, asked.memory
        if asked.executors:
            cores, memory = cores + asked.executor_cores, memory + asked.executor_memory
        others = nodes_of_other_replicas(replica.id, self.witness.current)
        return any(
            self.machines[name].up
            and name not in others
            and only in ("", name)
            and (not spec.settings.placement.nodes or name in spec.settings.placement.nodes)
            and cores <= free[0]
            and memory <= free[1]
            for name, free in self._free(replica.id).items()
        )

    def _may_not_use_data(self, spec: JobSpec) -> bool:
        """Whether the node with a job's data is there, and is none of those that the job is for."""
        origin = self._node_with_data(spec)
        return (
            bool(origin and spec.settings.placement.nodes)
            and origin not in spec.settings.placement.nodes
            and self.machines[origin].up
        )

    def _node_with_data(self, spec: JobSpec) -> str:
        """Return the node with a job's data; nothing if all nodes share it, or there is none yet."""
        node = self.world.ensemble.tree.get(f"{store_paths.KEPT}/{spec.name}")
        return (
            decode(BackupStatus, node.data).origin
            if node is not None and spec.settings.data_location == "node"
            else ""
        )

    def _has_no_place(self, replica: ReplicaSpec, able: list[str]) -> bool:
        """Whether a replica is where it may not be, or nowhere, because there are too few nodes for all."""
        assignment = self.witness.current.get(replica.id)
        if assignment is not None and assignment.node in able:
            return False
        # Where replicas keep off each other and share their nodes, room alone does not tell who fits.
        return len(able) < replica_count(replica.spec) or (self.scarce and is_replicated(replica.spec))

    def _check_safety(self, spec: JobSpec, status: JobStatus, workers: list[Worker]) -> None:
        if has_warm_standby(spec):
            waiting = [worker.node for worker in workers if worker.phase == "ready"]
            wanted = f"standby ready on {waiting[0]}" if waiting else "no standby"
            if "no node can take it" in status.reason or (self.scarce and not workers):
                return  # It runs as before, or not at all, until there is room.
            if len(workers) - len(waiting) != 1:
                raise UnsettledError(f"of {spec.name}, one should run: {waiting} of {workers} wait")
        elif spec.settings.replicas.k:
            wanted = (
                "k-safe"
                if len(workers) == spec.settings.replicas.k + 1
                else f"degraded (k={max(len(workers) - 1, 0)})"
            )
        else:
            wanted = ""
        if status.safety != wanted:
            raise UnsettledError(f"{spec.name} is said to be {status}, and is {wanted!r}")
        if bool(status.unsafe_since) and ReplicaSafety.parse(status.safety).is_safe:
            raise UnsettledError(f"{spec.name} is safe and not: {status}")

    def _check_replica(self, replica: ReplicaSpec, able: list[str], status: JobStatus) -> None:
        name, spec = str(replica.id), replica.spec
        workers = self.workers(name)
        told = [f"{worker.name} {worker.phase}" for worker in workers]
        node = self.world.ensemble.tree.get(f"{store_paths.ASSIGNMENTS}/{name}")
        assignment = decode(Assignment, node.data) if node is not None else None
        phases = ("running", "ready") if has_warm_standby(spec) else ("running",)
        is_told = self.scarce and "no node can take it" in status.reason
        if is_told and is_replicated(spec) and status.phase == "RUNNING":
            return  # A successor whose code was given up is tried on until there is room for another one.
        if len(workers) != 1 or workers[0].phase not in phases or status.phase != "RUNNING":
            raise UnsettledError(f"{name} shall run, is {status}, and has {told} for {assignment}")
        worker = workers[0]
        if assignment is None or worker.assignment.revision != assignment.revision:
            raise UnsettledError(f"{name} has {told} for {assignment}")
        if (
            is_told
            and not is_replicated(spec)
            and spec.settings.data_location != "node"
            and self._fits(replica, spec.driver)
        ):
            raise UnsettledError(f"{name} could be as it is wanted, and is said not to: {status}, {spec}")
        if is_told:
            return
        if (worker.assignment.bundle, worker.assignment.settings.resources.cores) != (
            spec.bundle,
            spec.settings.resources.cores,
        ):
            raise UnsettledError(f"{name} runs {worker.assignment}, and {spec} is wanted")
        others = nodes_of_other_replicas(replica.id, self.witness.current)
        wish = spec.driver in able and spec.driver not in others
        if worker.node not in able or (wish and worker.node != spec.driver):
            raise UnsettledError(f"{name} runs on {worker.node}, not on {spec.driver or able}")
        self._check_executors(replica, assignment, worker)

    def _lacks_data(self, name: str) -> bool:
        """Whether the node with a job's data is gone, and so is every copy; then it waits for one of them."""
        node = self.world.ensemble.tree.get(f"{store_paths.KEPT}/{name}")
        kept = decode(BackupStatus, node.data) if node is not None else None
        return kept is not None and kept.origin in self._lost and kept.store in ("", *self._lost)

    def _check_executors(self, replica: ReplicaSpec, assignment: Assignment, worker: Worker) -> None:
        # One whose node is lost keeps its place while there is no room elsewhere.
        wanted = sorted(
            (slot.node, slot_role(slot.ordinal))
            for slot in assignment.executors
            if not self.scarce or self.machines[slot.node].up
        )
        running = sorted(
            (name, process.instance.role if process.worker is worker else "of another driver")
            for name, machine in self.machines.items()
            for process in machine.executors(str(replica.id))
        )
        asked = replica.spec.settings.resources.executors
        lacking = asked - len(wanted)
        reason = self.witness.statuses[replica.id.job].reason
        told = f"{lacking} of {asked} executors have no node" in reason
        if self.scarce and (told or worker.phase == "ready"):
            lacking = 0  # Of one that stands by it is not said.
        if lacking or running != wanted:
            raise UnsettledError(
                f"{replica.id}: executors {running} run, {wanted} are wanted by {replica.spec}"
            )
