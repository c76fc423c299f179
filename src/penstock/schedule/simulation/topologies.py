"""Three topologies of jobs, of 4, 6 and 8 vertices, for scenarios that name none of their own.

SpeedStream compares schedulers on three jobs (V.D, Fig. 11) that its text does not describe; these are ours.

- ``word-count`` is a chain: lines are split into words, words counted by key, counts stored.
- ``enrichment`` is a diamond: what is parsed goes two ways, is enriched or filtered, and meets in a join.
- ``fraud`` has two sources and a loop: orders and clicks are cleaned and matched, matches scored, and what is
  learned from the scores goes back to the scoring.
"""

from __future__ import annotations

from penstock.schedule.simulation.scenario import GIB, Edge, Topology, Vertex

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
