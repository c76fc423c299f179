"""One run: events, decisions and samples on virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import floor

from penstock.schedule.deciding import Placement, decide
from penstock.schedule.model import ClusterSnapshot
from penstock.schedule.simulation.cluster import Sample, SimulatedCluster
from penstock.schedule.simulation.recovery import Locations, LostTask, Recovery, pinned
from penstock.schedule.simulation.scenario import Scenario
from penstock.schedule.simulation.workload import (
    Event,
    ExternalEvent,
    JobEnded,
    JobSubmitted,
    LoadsChanged,
    NodeFailed,
    NodeReturned,
)
from penstock.schedule.strategies import Strategy

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
