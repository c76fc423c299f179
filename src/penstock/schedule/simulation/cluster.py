"""A cluster that is only figures: which nodes are there, which jobs run, where their tasks are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock.schedule.cost import imbalance
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import ClusterSnapshot, Task, Traffic
from penstock.schedule.simulation.scenario import Scenario, Topology


@dataclass(frozen=True)
class Sample:
    """What is measured at one moment."""

    at: float
    imbalance: float
    """S of what tasks use, over the nodes that are there."""
    cross_node: float
    """Bytes a second between nodes."""
    cross_switch: float
    """Bytes a second between racks."""
    jobs: int
    tasks: int
    unplaced: int
    """Tasks without a node."""
    nodes: int


@dataclass
class _Job:
    topology: Topology
    tasks: tuple[Task, ...]
    load: float
    traffic: tuple[Traffic, ...]


class SimulatedCluster:
    """Nodes, jobs and places, changed by events and by decisions."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._all = {node.name: node for node in scenario.nodes}
        self.nodes = dict(self._all)
        self.jobs: dict[str, _Job] = {}
        self.places: dict[str, str] = {}

    def submit(self, job: str, topology: Topology) -> None:
        """Add the tasks of a job, which run nowhere yet."""
        self.jobs[job] = _Job(topology, topology.tasks_of(job), 1.0, topology.traffic_of(job))

    def end(self, job: str) -> None:
        """Take the tasks of a job away."""
        for task in self.jobs.pop(job).tasks:
            self.places.pop(task.id, None)

    def lose(self, node: str) -> list[str]:
        """Take a node away; return the tasks that ran there."""
        del self.nodes[node]
        lost = sorted(task for task, place in self.places.items() if place == node)
        for task in lost:
            del self.places[task]
        return lost

    def return_node(self, node: str) -> None:
        """Bring a node back."""
        self.nodes[node] = self._all[node]

    def change(self, loads: Iterable[tuple[str, float]]) -> None:
        """Give jobs another load; what they send changes with it."""
        for name, load in loads:
            job = self.jobs[name]
            job.load = load
            job.traffic = job.topology.traffic_of(name, load)

    def place(self, matrix: Matrix) -> int:
        """Do what was decided; return how many running tasks it moves."""
        moved = sum(1 for task, node in matrix.places.items() if self.places.get(task, node) != node)
        self.places = dict(matrix.places)
        return moved

    @property
    def unplaced(self) -> int:
        """How many tasks have no node."""
        return sum(len(job.tasks) for job in self.jobs.values()) - len(self.places)

    def snapshot(self) -> ClusterSnapshot:
        """Return what decisions see: what tasks ask for, and how busy nodes are by what they use."""
        used = self._used()
        nodes = tuple(
            replace(node, load=min(max(used[node.name]), 1.0)) for _, node in sorted(self.nodes.items())
        )
        tasks = tuple(
            replace(task, current=self.places.get(task.id))
            for _, job in sorted(self.jobs.items())
            for task in job.tasks
        )
        scenario = self._scenario
        return ClusterSnapshot(nodes, tasks, self._traffic(), scenario.links, scenario.overloaded_above)

    def measure(self, at: float) -> Sample:
        """Return what is measured now."""
        cross_node = cross_switch = 0.0
        for pair in self._traffic():
            first, second = self.places.get(pair.first), self.places.get(pair.second)
            if first is not None and second is not None and first != second:
                cross_node += pair.rate
                if self._all[first].rack != self._all[second].rack:
                    cross_switch += pair.rate
        shares = [share for _, share in sorted(self._used().items())]
        tasks = sum(len(job.tasks) for job in self.jobs.values())
        return Sample(
            at,
            imbalance(shares),
            cross_node,
            cross_switch,
            len(self.jobs),
            tasks,
            self.unplaced,
            len(self.nodes),
        )

    def _traffic(self) -> tuple[Traffic, ...]:
        return tuple(pair for _, job in sorted(self.jobs.items()) for pair in job.traffic)

    def _used(self) -> dict[str, tuple[float, float]]:
        """Return the shares of its cores and of its memory that are used on each node."""
        cpu, memory = dict.fromkeys(self.nodes, 0.0), dict.fromkeys(self.nodes, 0)
        for job in self.jobs.values():
            for task in job.tasks:
                node = self.places.get(task.id)
                if node is not None:
                    cpu[node] += task.cpu * job.load
                    memory[node] += task.memory
        return {
            name: (cpu[name] / max(node.cores, 1e-9), memory[name] / max(node.memory, 1))
            for name, node in self.nodes.items()
        }
