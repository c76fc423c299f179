"""The scenarios that come with Penstock, and the three job topologies that they run.

SpeedStream compares schedulers on three jobs (V.D, Fig. 11) that its text does not describe; these are ours.

- ``word-count`` is a chain: lines are split into words, words counted by key, counts stored.
- ``enrichment`` is a diamond: what is parsed goes two ways, is enriched or filtered, and meets in a join.
- ``fraud`` has two sources and a loop: orders and clicks are cleaned and matched, matches scored, and what is
  learned from the scores goes back to the scoring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.schedule.placement_model import Link, Node
from penstock.schedule.simulation.scenario import (
    GIB,
    Backup,
    Edge,
    Failures,
    Load,
    Scenario,
    Topology,
    Vertex,
)

MB = 1e6


def _vertex(name: str, cpu: float, gib: float, tasks: int = 1) -> Vertex:
    return Vertex(name, cpu, int(gib * GIB), tasks)


def _edge(source: str, target: str, megabytes: float) -> Edge:
    return Edge(source, target, megabytes * MB)


WORD_COUNT = Topology(
    "word-count",
    (
        _vertex("lines", 0.5, 0.5),
        _vertex("split", 0.5, 0.5, tasks=2),
        _vertex("count", 0.5, 1.0, tasks=3),
        _vertex("store", 0.5, 0.5),
    ),
    (_edge("lines", "split", 8), _edge("split", "count", 10), _edge("count", "store", 2)),
)

ENRICHMENT = Topology(
    "enrichment",
    (
        _vertex("events", 0.5, 0.5),
        _vertex("parse", 0.5, 0.5, tasks=2),
        _vertex("enrich", 0.5, 1.5, tasks=2),
        _vertex("filter", 0.5, 0.5),
        _vertex("join", 0.5, 2.0, tasks=2),
        _vertex("sink", 0.25, 0.5),
    ),
    (
        _edge("events", "parse", 6),
        _edge("parse", "enrich", 4),
        _edge("parse", "filter", 3),
        _edge("enrich", "join", 4),
        _edge("filter", "join", 1),
        _edge("join", "sink", 2),
    ),
)

FRAUD = Topology(
    "fraud",
    (
        _vertex("orders", 0.5, 0.5),
        _vertex("clicks", 0.5, 0.5),
        _vertex("clean", 0.5, 0.5, tasks=2),
        _vertex("match", 0.75, 1.5, tasks=3),
        _vertex("score", 1.0, 1.0, tasks=2),
        _vertex("learn", 1.0, 2.0),
        _vertex("alert", 0.25, 0.25),
        _vertex("archive", 0.25, 0.5),
    ),
    (
        _edge("orders", "clean", 3),
        _edge("clicks", "clean", 5),
        _edge("clean", "match", 7),
        _edge("match", "score", 4),
        _edge("score", "learn", 1),
        _edge("learn", "score", 0.5),
        _edge("score", "alert", 0.5),
        _edge("match", "archive", 3),
    ),
)

TOPOLOGIES = (WORD_COUNT, ENRICHMENT, FRAUD)


GIGABIT = 125e6


def speedstream() -> Scenario:
    """SpeedStream's comparison (V.D): five nodes, a job every 20 s, a sample every 5 s, for five minutes.

    The nodes are alike, three at one switch and two at another. Jobs run on, so that the cluster fills; a job
    that would take more than 95 % of it waits outside.
    """
    nodes = tuple(
        Node(f"node-{number}", 10, 20 * GIB, GIGABIT, "switch-a" if number <= 3 else "switch-b")
        for number in range(1, 6)
    )
    return Scenario("speedstream", nodes, TOPOLOGIES, duration=300, submit_every=20, fill=0.95)


def failures() -> Scenario:
    """A hundred nodes of three sizes in five racks: jobs come and end, loads change, nodes fail and return.

    Backups are kept for the loss of one node at a time.
    """
    sizes = ((2, 4), (4, 8), (8, 16))
    nodes = tuple(
        Node(
            f"node-{number:03}",
            sizes[number % 3][0],
            sizes[number % 3][1] * GIB,
            GIGABIT,
            f"rack-{number % 5}",
        )
        for number in range(100)
    )
    return Scenario(
        "failures",
        nodes,
        TOPOLOGIES,
        duration=900,
        submit_every=10,
        sample_every=15,
        links=tuple(Link(f"rack-{number}", 10 * GIGABIT) for number in range(5)),
        fill=0.8,
        job_seconds=600,
        rebalance_every=300,
        overloaded_above=0.9,
        load=Load(every=30),
        failures=Failures(between=45, repair=180),
        backup=Backup(input_rate=1e6),
    )


SCENARIOS: Mapping[str, Callable[[], Scenario]] = {"speedstream": speedstream, "failures": failures}
