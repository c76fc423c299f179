"""The faults of a simulation, one after the other at random times."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.replicas.replica_id import ReplicaId
from simulation.actors import SESSION, Actor
from simulation.clients import JOBS
from simulation.worker import Worker

if TYPE_CHECKING:
    from simulation.cluster import Cluster

_EVERY = 6.0


class Faults:
    """Breaks something now and then, and mends it later."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._kinds: tuple[Callable[[], None], ...] = (
            self._crash_master,
            self._crash_supervisor,
            self._crash_worker,
            self._crash_worker,
            self._lose_machine,
            self._shut_machine_down,
            self._freeze,
            self._freeze,
            self._cut_off,
            self._cut_off,
            self._expire,
            self._stop_servers,
            self._hang_worker,
            self._fail_worker,
            self._crash_executor,
        )
        self.names = {kind.__name__ for kind in self._kinds}
        self.struck: set[str] = set()
        """Which of them there were so far."""
        self._world.after(5.0, self._strike)

    def _strike(self) -> None:
        if not self._world.faulty:
            return
        kind = self._world.random.choice(self._kinds)
        self.struck.add(kind.__name__)
        kind()
        self._world.after(self._world.random.expovariate(1 / _EVERY), self._strike)

    def _crash_master(self) -> None:
        self._world.random.choice(self._cluster.masters()).crash()

    def _crash_supervisor(self) -> None:
        machine = self._world.random.choice(self._cluster.up())
        if machine.supervisor is not None:
            machine.supervisor.crash()

    def _crash_worker(self) -> None:
        for worker in self._some_worker():
            worker.crash()

    def _hang_worker(self) -> None:
        for worker in self._some_worker():
            self._world.tell(worker.name, "hangs")
            worker.hung = True

    def _fail_worker(self) -> None:
        for worker in self._some_worker():
            if not worker.stepping:
                worker.exit("failed", "its source has gone")

    def _crash_executor(self) -> None:
        executors = [
            one
            for machine in self._cluster.up()
            for job in JOBS
            for number in range(3)
            for one in machine.executors(str(ReplicaId(job, number)))
        ]
        if executors:
            self._world.random.choice(executors).crash()

    def _some_worker(self) -> list[Worker]:
        workers = self._cluster.workers()
        return [self._world.random.choice(workers)] if workers else []

    def _lose_machine(self) -> None:
        self._world.random.choice(self._cluster.up()).fall()

    def _shut_machine_down(self) -> None:
        self._world.random.choice(self._cluster.up()).shut_down()

    def _freeze(self) -> None:
        actor = self._some_actor()
        actor.freeze(self._world.random.choice((1.0, 4.0, SESSION + 1, 3 * SESSION)))

    def _cut_off(self) -> None:
        self._some_actor().disconnect(self._world.random.uniform(0.1, 3 * SESSION))

    def _expire(self) -> None:
        self._some_actor().expire()

    def _stop_servers(self) -> None:
        ensemble = self._world.ensemble
        if ensemble.running:
            self._world.tell("servers", "go down")
            ensemble.stop()
            self._world.after(self._world.random.uniform(0.5, 20.0), self._start_servers)

    def _start_servers(self) -> None:
        self._world.tell("servers", "come up")
        self._world.ensemble.start()

    def _some_actor(self) -> Actor:
        actors: list[Actor] = [*self._cluster.masters(), *self._cluster.workers()]
        actors += [machine.supervisor for machine in self._cluster.up() if machine.supervisor is not None]
        return self._world.random.choice(actors)
