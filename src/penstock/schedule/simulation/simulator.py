"""Runs a scenario on virtual time.

A cluster made of numbers, and the loop over events, decisions and samples. Decisions are made by the code
that the master uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import floor

from penstock.schedule.placement_cost import imbalance
from penstock.schedule.placement_decision import Placement, decide
from penstock.schedule.placement_model import ClusterSnapshot, Matrix, Task, Traffic
from penstock.schedule.placement_strategies import Strategy
from penstock.schedule.simulation.scenario import Scenario, Topology
from penstock.schedule.simulation.simulated_recovery import Locations, LostTask, Recovery, pinned
from penstock.schedule.simulation.workload import (
    Event,
    ExternalEvent,
    JobEnded,
    JobSubmitted,
    LoadsChanged,
    NodeFailed,
    NodeReturned,
)


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


Watcher = Callable[[ClusterSnapshot, Placement], None]
"""Is told every decision, and the snapshot that it was made for."""


@dataclass(frozen=True)
class Run:
    """What was measured."""

    strategy: str
    samples: tuple[Sample, ...]
    recoveries: tuple[Recovery, ...]
    moves: int
    """Running tasks that were moved."""
    refused: int
    """Decisions in which what the strategy said was not used."""


@dataclass(frozen=True)
class _Rebalance:
    pass


@dataclass(frozen=True)
class _Measure:
    pass


def simulate(
    scenario: Scenario,
    events: Iterable[Event],
    strategy: Strategy,
    *,
    name: str,
    watch: Watcher | None = None,
) -> Run:
    """Let a strategy place the tasks of a run, with the code that a master uses.

    What happens at one moment is decided on together: events first, then rebalancing, then the sample.
    """
    run = _Simulation(scenario, strategy, name, watch)
    for at, what in _timeline(scenario, sorted(events, key=lambda event: event.at)):
        run.happen(at, what)
    return Run(name, tuple(run.samples), tuple(run.recoveries), run.moves, run.refused)


def _timeline(
    scenario: Scenario, events: Sequence[Event]
) -> Iterator[tuple[float, ExternalEvent | _Rebalance | _Measure]]:
    timed: list[tuple[float, int, ExternalEvent | _Rebalance | _Measure]]
    timed = [(event.at, 0, event.what) for event in events]
    timed += [(at, 1, _Rebalance()) for at in _ticks(scenario.rebalance_every, scenario.duration)]
    timed += [(at, 2, _Measure()) for at in _ticks(scenario.sample_every, scenario.duration)]
    timed.sort(key=lambda entry: entry[:2])
    return ((at, what) for at, _, what in timed if at <= scenario.duration)


def _ticks(every: float, duration: float) -> list[float]:
    return [number * every for number in range(1, floor(duration / every + 1e-9) + 1)] if every else []


@dataclass
class _Simulation:
    scenario: Scenario
    strategy: Strategy
    name: str
    watch: Watcher | None
    samples: list[Sample] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)
    moves: int = 0
    refused: int = 0

    def __post_init__(self) -> None:
        self.cluster = SimulatedCluster(self.scenario)
        backup = self.scenario.backup
        self.locations = Locations(backup) if backup else None
        self.waiting: dict[str, LostTask] = {}

    def happen(self, at: float, what: ExternalEvent | _Rebalance | _Measure) -> None:
        """Do what happens, and decide where that asks for it."""
        cluster = self.cluster
        match what:
            case _Measure():
                self.samples.append(cluster.measure(at))
                return
            case LoadsChanged(loads):
                cluster.change(loads)
                return
            case JobSubmitted(job, topology):
                cluster.submit(job, topology)
            case JobEnded(job):
                cluster.end(job)
                self.waiting = {task: lost for task, lost in self.waiting.items() if task in self._tasks()}
            case NodeFailed(node):
                lost = cluster.lose(node)
                if self.locations is not None:
                    known = self.locations.lost(lost, at)
                    self.waiting.update({one.task: one for one in known})
                    self._decide(at, pinned(cluster.snapshot(), known))
            case NodeReturned(node):
                cluster.return_node(node)
            case _Rebalance():
                self._decide(at, cluster.snapshot(), everything=True)
        if cluster.unplaced:
            self._decide(at, cluster.snapshot())
        if self.locations is not None:
            self.locations.decide(cluster.snapshot())

    def _decide(self, at: float, snapshot: ClusterSnapshot, *, everything: bool = False) -> None:
        demands = snapshot.tasks if everything else ()
        placement = decide(self.strategy, snapshot, name=self.name, demands=demands)
        if self.watch is not None:
            self.watch(snapshot, placement)
        self.refused += bool(placement.refused)
        self.moves += self.cluster.place(placement.matrix)
        for task in sorted(self.waiting):
            node = placement.matrix.places.get(task)
            if node is not None and self.locations is not None:
                lost = self.waiting.pop(task)
                self.recoveries.append(self.locations.recovered(lost, node, at, snapshot))

    def _tasks(self) -> set[str]:
        return {task.id for job in self.cluster.jobs.values() for task in job.tasks}
