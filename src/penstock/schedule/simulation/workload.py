"""The events of a simulated cluster: jobs start and end, load changes, nodes fail and return.

All of it is drawn before anything is placed, so that every strategy meets the same events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, log
from typing import Protocol

from penstock.schedule.simulation.scenario import Failures, Load, Scenario, Topology


class RandomSource(Protocol):
    """Where chance comes from; ``random.Random`` is one. The caller makes it, with a seed."""

    def random(self) -> float:
        """Return a number from 0 to 1, without 1."""
        ...


@dataclass(frozen=True)
class JobSubmitted:
    """A job comes."""

    job: str
    topology: Topology


@dataclass(frozen=True)
class JobEnded:
    """A job ends."""

    job: str


@dataclass(frozen=True)
class NodeFailed:
    """A node is lost, with all that runs on it and all that it stores."""

    node: str


@dataclass(frozen=True)
class NodeReturned:
    """A node is back, empty."""

    node: str


@dataclass(frozen=True)
class LoadsChanged:
    """The jobs have other loads: shares of their full loads."""

    loads: tuple[tuple[str, float], ...]


ExternalEvent = JobSubmitted | JobEnded | NodeFailed | NodeReturned | LoadsChanged


@dataclass(frozen=True)
class Event:
    """Something that happens at a time."""

    at: float
    what: ExternalEvent


def draw_events(scenario: Scenario, draw: RandomSource) -> tuple[Event, ...]:
    """Return what happens in one run, in the order of time."""
    events = list(_jobs(scenario, draw))
    if scenario.failures is not None:
        events += _failures(scenario, scenario.failures, draw)
    if scenario.load is not None:
        events += _loads(scenario, scenario.load, events, draw)
    return tuple(sorted(events, key=lambda event: event.at))


@dataclass
class _RunningJobs:
    """The jobs that run, and what they ask for."""

    cpu: float = 0.0
    memory: int = 0
    ends: list[tuple[float, str, Topology]] = field(default_factory=list)

    def start(self, job: str, topology: Topology, end: float) -> None:
        self.cpu += topology.cpu
        self.memory += topology.memory
        heappush(self.ends, (end, job, topology))

    def end_until(self, now: float) -> Iterator[Event]:
        while self.ends and self.ends[0][0] <= now:
            at, job, topology = heappop(self.ends)
            self.cpu -= topology.cpu
            self.memory -= topology.memory
            yield Event(at, JobEnded(job))


def _jobs(scenario: Scenario, draw: RandomSource) -> Iterator[Event]:
    running = _RunningJobs()
    most_cpu, most_memory = scenario.fill * scenario.cores, scenario.fill * scenario.memory
    for number in range(_times(scenario.duration, scenario.submit_every)):
        now = number * scenario.submit_every
        yield from running.end_until(now)
        topology = scenario.topologies[int(draw.random() * len(scenario.topologies))]
        lasts = _exponential(draw, scenario.job_seconds) if scenario.job_seconds else scenario.duration + 1
        fits = running.cpu + topology.cpu <= most_cpu and running.memory + topology.memory <= most_memory
        if fits:
            job = f"job-{number:04}"
            running.start(job, topology, now + lasts)
            yield Event(now, JobSubmitted(job, topology))
    yield from running.end_until(scenario.duration)


def _failures(scenario: Scenario, failures: Failures, draw: RandomSource) -> Iterator[Event]:
    away: list[tuple[float, str]] = []
    now = _exponential(draw, failures.between)
    while now < scenario.duration:
        away = [entry for entry in away if entry[0] > now]
        lost = {node for _, node in away}
        left = [node.name for node in scenario.nodes if node.name not in lost]
        if 2 * (len(lost) + 1) <= len(scenario.nodes):
            node = left[int(draw.random() * len(left))]
            back = now + failures.repair
            away.append((back, node))
            yield Event(now, NodeFailed(node))
            if back < scenario.duration:
                yield Event(back, NodeReturned(node))
        now += _exponential(draw, failures.between)


def _loads(scenario: Scenario, load: Load, events: Sequence[Event], draw: RandomSource) -> Iterator[Event]:
    jobs = sorted(
        (event for event in events if isinstance(event.what, JobSubmitted | JobEnded)),
        key=lambda event: event.at,
    )
    now: dict[str, float] = {}
    position = 0
    for number in range(1, _times(scenario.duration, load.every)):
        at = number * load.every
        while position < len(jobs) and jobs[position].at <= at:
            what = jobs[position].what
            if isinstance(what, JobSubmitted):
                now[what.job] = 1.0
            elif isinstance(what, JobEnded):
                del now[what.job]
            position += 1
        for job in sorted(now):
            step = (2 * draw.random() - 1) * load.step
            now[job] = min(max(now[job] + step, load.least), 1.0)
        yield Event(at, LoadsChanged(tuple(sorted(now.items()))))


def _times(duration: float, every: float) -> int:
    """Return how often something happens before the end that happens every so many seconds, from 0 on."""
    return ceil(duration / every - 1e-9)


def _exponential(draw: RandomSource, mean: float) -> float:
    return -mean * log(1.0 - draw.random())
