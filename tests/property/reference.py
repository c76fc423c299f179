"""What a job means, in plain Python: one record at a time, no batches, no Spark.

Random jobs use only operators whose results do not depend on how the input is cut into batches, so that
the multiset of everything that reaches a sink or is discarded is one and the same.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import penstock as ps
from penstock.graph.edge import Edge

Multiset = Counter[Any]

SLOTS = 2
"""The number of keyed tasks of a job that declares none, where these tests run it."""


class Running(ps.StatefulTask):
    """Emits, for each value, which one of its key it is."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        seen = state or 0
        return seen + len(values), [(key, seen + n) for n in range(1, len(values) + 1)]


class Echo(ps.StatefulTask):
    """Emits each value, and keeps count. On a cycle, numbering would depend on who comes first."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        return (state or 0) + len(values), [(key, value + 1) for value in values]


class Parity(ps.Task):
    """Two output ports, by the parity of the value."""

    outputs = ("even", "odd")

    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        for record in inputs.get():
            outputs.emit(record.key, record.value, port="odd" if record.value % 2 else "even")


def add_one(record: ps.Record) -> Any:
    return record.value % 50 + 1


def rekey(record: ps.Record) -> Any:
    return record.value % 3, record.value


def spread(record: ps.Record) -> Any:
    return [(record.key, record.value), (record.value % 2, record.value + 7)] if record.value % 3 else None


@dataclass
class RandomJob:
    """A job with what is needed to evaluate it."""

    job: ps.Job
    feed: dict[str, list[tuple[int, int]]]


def random_job(seed: int) -> RandomJob:
    """Make a job: acyclic or cyclic, keyed or not, with one or two sources and sinks."""
    sketch = _build(seed, looped=frozenset())
    return _build(seed, looped=frozenset(name for cycle in sketch.job.cycles() for name in cycle))


def _build(seed: int, looped: frozenset[str]) -> RandomJob:
    dice = random.Random(seed)
    instances = random.Random(f"instances of {seed}")
    rounds, default = dice.choice([0, 1, 2]), dice.choice([1, 2, 3])
    job = ps.Job(
        f"random-{seed}",
        max_iterations=rounds,
        parallelism=instances.choice([default, default, None]),
        buckets=instances.choice([1, 2, 3, 16]),
    )
    sources = [job.source(f"source{n}", ps.MemorySource()) for n in range(dice.choice([1, 1, 2]))]
    keyed = dice.random() < 0.7
    operators: list[Any] = [add_one, rekey, spread, Parity(), *([Running(), Running()] if keyed else [])]
    tasks = []
    for n in range(dice.randint(1, 5)):
        kind = dice.choice(operators)
        if isinstance(kind, Running) and f"task{n}" in looped:
            kind = Echo()
        stateful = isinstance(kind, ps.StatefulTask)
        parallelism = None if stateful else instances.choice([None, None, 2, 3, job.parallelism])
        tasks.append(job.task(f"task{n}", kind, parallelism=parallelism))
    sinks = [job.sink(f"sink{n}", ps.MemorySink()) for n in range(dice.choice([1, 1, 2]))]
    joined: set[tuple[str, str, str]] = set()

    def join(source: ps.Vertex, port: str, target: ps.Vertex) -> None:
        if (source.name, port, target.name) in joined:
            return
        joined.add((source.name, port, target.name))
        stateful = isinstance(target.operator, ps.StatefulTask)
        by = ps.SAME_KEY if keyed and not stateful and dice.random() < 0.3 else None
        chance = 0.3 if target.parallelism else 0.1
        if by is None and not stateful and target.kind == "task" and instances.random() < chance:
            by = ps.BROADCAST
        job.connect(source[port], target, by=by)

    # A backbone makes everything reachable; extra edges, forward and backward, make it interesting.
    for source in sources:
        join(source, "out", tasks[0])
    for before, after in pairwise(tasks):
        for port in before.outputs:
            join(before, port, after)
    for sink in sinks:
        for port in tasks[-1].outputs:
            join(tasks[-1], port, sink)
    for _ in range(dice.randint(0, 3)):
        start = dice.choice(tasks)
        join(start, dice.choice(start.outputs), dice.choice([*tasks, *sinks]))
    feed = {
        source.name: [(dice.randrange(4), dice.randrange(20)) for _ in range(dice.randint(0, 8))]
        for source in sources
    }
    return RandomJob(job, feed)


def evaluate(random_job: RandomJob, most: int = 20_000) -> tuple[dict[str, Multiset], Multiset] | None:
    """Return what reaches each sink and what is discarded; None when it is more than a test wants."""
    job = random_job.job
    closing = {(edge.source, edge.target) for edge in _closing(job)}
    out: dict[str, Multiset] = {name: Counter() for name in job.sinks}
    discarded: Multiset = Counter()
    state: dict[tuple[int, Any], int] = {}
    queue: deque[tuple[int, str, int, int, tuple[tuple[int, int], ...]]] = deque()
    for name, items in random_job.feed.items():
        vertex = job.vertex(name)
        queue.extend((vertex.index, "out", key, value, ()) for key, value in items)
    steps = 0
    while queue:
        steps += 1
        if steps > most:
            return None
        source, port, key, value, counters = queue.popleft()
        for edge in job.edges:
            if (edge.source, edge.source_port) != (source, port):
                continue
            target = job.vertices[edge.target]
            counts = dict(counters)
            if (edge.source, edge.target) in closing:
                counts[edge.target] = counts.get(edge.target, 0) + 1
                if counts[edge.target] > (job.max_iterations or 0):
                    discarded[(target.name, counts[edge.target], key, value)] += 1
                    continue
            if target.kind == "sink":
                out[target.name][(key, value)] += 1
                continue
            every = target.parallelism or job.parallelism or min(SLOTS, job.buckets or SLOTS)
            copies = every if edge.by is ps.BROADCAST else 1
            for its_port, its_key, its_value in copies * _call(target, key, value, state):
                queue.append((target.index, its_port, its_key, its_value, tuple(sorted(counts.items()))))
    return out, discarded


def compare(random_job: RandomJob, out: Mapping[str, list[ps.Record]], discarded: list[ps.Discarded]) -> None:
    """See that a run gave what the evaluation gives."""
    expected = evaluate(random_job)
    assert expected is not None
    assert {name: Counter((r.key, r.value) for r in records) for name, records in out.items()} == expected[0]
    found = Counter((d.vertex, d.count, d.record.key, d.record.value) for d in discarded)
    assert found == expected[1]


def _closing(job: ps.Job) -> list[Edge]:
    """The edges that lead from the last vertex of an enumerated cycle to its first."""
    ends = {(cycle[-1], cycle[0]) for cycle in job.cycles()}
    names = [vertex.name for vertex in job.vertices]
    return [edge for edge in job.edges if (names[edge.source], names[edge.target]) in ends]


def _call(vertex: ps.Vertex, key: Any, value: Any, state: dict[Any, int]) -> list[tuple[str, Any, Any]]:
    operator = vertex.operator
    if isinstance(operator, Running):
        state[vertex.index, key] = state.get((vertex.index, key), 0) + 1
        return [("out", key, state[vertex.index, key])]
    if isinstance(operator, Echo):
        return [("out", key, value + 1)]
    if isinstance(operator, Parity):
        return [("odd" if value % 2 else "even", key, value)]
    result = operator.function(ps.Record(key, value))
    if result is None:
        return []
    if isinstance(result, tuple):
        return [("out", *result)]
    if isinstance(result, list):
        return [("out", *pair) for pair in result]
    return [("out", key, result)]
