"""Machines of the simulated cluster. What runs on one outlives its supervisor; a new one finds it there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.cluster.failure_policy import FailurePolicy
from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.worker_supervision import ObservedProcess, Start, SupervisionTimeouts, is_executor
from penstock.supervisor.machine_load import MachineSample
from penstock.supervisor.supervisor import Supervisor, SupervisorSettings
from simulation.actors import Actor
from simulation.storage import Storage
from simulation.worker import Worker
from simulation.world import InvariantError, World

PATIENCE = SupervisionTimeouts(
    start=15.0,
    starting=15.0,
    heartbeat=8.0,
    leave=15.0,
    drain=10.0,
    failures=FailurePolicy(window=15.0, longest_retry=8.0, give_up_after=5),
)
_KEPT = 3

Place = tuple[str, str, int, int]
"""Job, role, revision and attempt."""


@dataclass
class Process:
    """What a folder of an instance would hold. An executor lives as long as its driver, or less."""

    instance: ObservedProcess
    worker: Worker
    """The worker that it is, or that it is an executor of."""
    killed: bool = False

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self.worker.alive and not self.killed

    def crash(self, how: str = "") -> None:
        """End the process without a word."""
        self.killed = True
        if not is_executor(self.instance.role):
            self.worker.crash(how)

    def ask_to_end(self) -> None:
        """Have a worker end after its batch, an executor after a while."""
        if is_executor(self.instance.role):
            world = self.worker.world
            world.after(world.random.choice((1.0, 5.0, 2 * PATIENCE.drain)), self.crash)
        else:
            self.worker.asked_to_stop = True


class Machine:
    """A node: its processes, and one supervisor at a time."""

    def __init__(
        self, world: World, storage: Storage[Worker], name: str, cores: int, memory: int = 64 << 30
    ) -> None:
        self.world = world
        self.storage = storage
        self.name = name
        self.cores = cores
        self.memory = memory
        self.up = True
        self.processes: dict[Place, Process] = {}
        self.supervisor: SupervisorActor | None = None
        self.pids: list[int] = []
        self.boot()

    def boot(self) -> None:
        """Start the machine's supervisor, and the machine if need be."""
        self.up = True
        if self.supervisor is None or not self.supervisor.alive:
            self.pids.append(len(self.pids) + 1)
            self.supervisor = SupervisorActor(self, self.pids[-1])
            self.world.tell(self.name, "has a supervisor")

    def fall(self) -> None:
        """Lose the machine with all that runs on it. Its disk stays."""
        self.world.tell(self.name, "falls")
        self.up = False
        if self.supervisor is not None:
            self.supervisor.crash("with its machine")
        for process in list(self.processes.values()):
            process.crash("with its machine")

    def shut_down(self) -> None:
        """Have the machine end in good order: its processes are asked to end first."""
        self.world.tell(self.name, "shuts down")
        for process in list(self.processes.values()):
            process.ask_to_end()
        self.world.after(5.0, self.fall)

    def is_dead(self, info: NodeInfo) -> bool:
        """Whether a supervisor of this machine is known to be dead."""
        return self.supervisor is None or info.pid != self.supervisor.pid

    def start(self, start: Start, now: float) -> None:
        """Start a process."""
        assignment = start.assignment
        place = (assignment.job, start.role, assignment.revision, start.attempt)
        before = self.storage.started.setdefault(place, self.name)
        # The number of an executor says nothing about the job's folder, and need not be its own.
        if place in self.processes or (before != self.name and not is_executor(start.role)):
            raise InvariantError(f"{place} starts on {self.name}, and did on {before} before")
        instance = ObservedProcess(*place, generation=assignment.generation, alive=True, started=now)

        def exited(outcome: str, reason: str) -> None:
            process.instance = replace(process.instance, outcome=outcome, reason=reason, died=self.world.now)

        if start.driver is None:
            worker = Worker(self.world, self.storage, assignment, self.name, start.attempt, exited)
        else:
            worker = self.storage.applications[start.driver.app_id]
            instance = replace(instance, app_id=start.driver.app_id)
        process = self.processes[place] = Process(instance, worker)
        self.world.tell(self.name, f"starts {place}: {start.reason}")

    def workers(self, job: str) -> list[Worker]:
        """Return the living workers of a job."""
        return [process.worker for place, process in self._living(job) if not is_executor(place[1])]

    def executors(self, job: str) -> list[Process]:
        """Return the living executors of a job."""
        return [process for place, process in self._living(job) if is_executor(place[1])]

    def _living(self, job: str) -> list[tuple[Place, Process]]:
        return [item for item in self.processes.items() if item[0][0] == job and item[1].alive]


class MachineInstances:
    """Implements :class:`penstock.supervisor.supervisor.Instances`, as one supervisor sees them."""

    def __init__(self, machine: Machine, pause: Callable[[], None]) -> None:
        self._machine = machine
        self._pause = pause
        """Called where the supervisor may be paused or die between two deeds."""
        self._dead: dict[Place, ObservedProcess] = {}
        """What is dead does not change any more, but for being counted."""

    def look(self, now: float) -> list[ObservedProcess]:
        processes = self._machine.processes
        found = [self._look_at(place, processes[place], now) for place in sorted(processes)]
        self._prune(found)
        return found

    def _look_at(self, place: Place, process: Process, now: float) -> ObservedProcess:
        known = self._dead.get(place)
        if known is not None:
            return known
        worker = process.worker
        instance = replace(process.instance, heartbeat=worker.beaten, phase=worker.phase, alive=process.alive)
        if not instance.alive:
            instance = self._dead[place] = replace(instance, died=instance.died or now)
        return instance

    def start(self, start: Start, now: float) -> None:
        self._pause()
        self._machine.start(start, now)
        self._pause()

    def ask_to_end(self, instance: ObservedProcess, now: float) -> None:
        process = self._machine.processes[_place(instance)]
        process.instance = replace(process.instance, asked_to_end=now)
        process.ask_to_end()

    def kill(self, instance: ObservedProcess, reason: str = "") -> None:
        process = self._machine.processes.get(_place(instance))
        if process is not None:
            process.crash("killed by its supervisor")
        self._pause()

    def count(self, instance: ObservedProcess) -> None:
        process = self._machine.processes[_place(instance)]
        process.instance = replace(process.instance, counted=True)
        self._dead.pop(_place(instance), None)

    def figures(self, instance: ObservedProcess) -> tuple[float, int, int]:
        return (0.5, 1 << 20, instance.revision)

    def _prune(self, found: list[ObservedProcess]) -> None:
        dead: dict[tuple[str, str], list[ObservedProcess]] = {}
        for instance in found:
            if not instance.alive:
                dead.setdefault((instance.job, instance.role), []).append(instance)
        for instances in dead.values():
            for instance in sorted(instances, key=lambda one: (one.revision, one.attempt))[:-_KEPT]:
                self._machine.processes.pop(_place(instance), None)
                self._dead.pop(_place(instance), None)


def _place(instance: ObservedProcess) -> Place:
    return (instance.job, instance.role, instance.revision, instance.attempt)


class _Sampler:
    def sample(self, now: float) -> MachineSample:
        return MachineSample(0.1, 1, 2, 0.0, 0.0)


class SupervisorActor(Actor):
    """A real supervisor on a machine."""

    def __init__(self, machine: Machine, pid: int) -> None:
        self.machine = machine
        self.pid = pid
        self._supervisor: Supervisor | None = None
        super().__init__(machine.world, f"{machine.name}/{pid}", 1.0)

    def step(self) -> None:
        """Do as the real one does in its loop."""
        if self._supervisor is None:
            self._supervisor = self._open()
        self._supervisor._wake.clear()
        self._supervisor.step(self.world.now)

    def woken(self) -> bool:
        """Whether the supervisor wants to look again at once."""
        return self._supervisor is not None and self._supervisor._wake.is_set()

    def _open(self) -> Supervisor:
        machine = self.machine
        info = NodeInfo(machine.name, machine.name, machine.cores, machine.memory, pid=self.pid)
        return Supervisor(
            self.connect(),
            info,
            MachineInstances(machine, self.interlude),
            _Sampler(),
            settings=SupervisorSettings(patience=PATIENCE, report=20.0),
            clock=lambda: self.world.now,
            is_dead=machine.is_dead,
        )
