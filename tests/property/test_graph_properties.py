"""Graphs, cycles, validation and plans against their definitions, on many random jobs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.graph.samples import Join, NoSink, NoSource, Quiet, same

from penstock.errors import GraphError
from penstock.graph.aggregations import Count
from penstock.graph.edge import BROADCAST, ROUND_ROBIN, SAME_KEY
from penstock.graph.graph_algorithms import loop_edges
from penstock.graph.job import Job
from penstock.graph.qos import QoS
from penstock.graph.validation import find_problems
from penstock.plan.physical_plan import Channel, PhysicalPlan, compile_plan

GRAPHS = 2000
PLANS = 600
CHUNKS = 4

Pairs = list[tuple[int, int]]


def random_pairs(rng: random.Random, size: int) -> Pairs:
    density = rng.choice((0.05, 0.1, 0.2, 0.3, 0.45))
    return [(start, end) for start in range(size) for end in range(size) if rng.random() < density]


def random_graphs(chunk: int) -> Iterator[tuple[Job, Pairs]]:
    for number in range(chunk, GRAPHS, CHUNKS):
        rng = random.Random(number)
        size = rng.randint(1, 8)
        pairs = random_pairs(rng, size)
        job = Job("graph")
        # Names in another order than indices, so that sorting by the one shows in the other.
        names = rng.sample("abcdefgh", size)
        vertices = [job.task(name, same) for name in names]
        for start, end in rng.sample(pairs, len(pairs)):
            vertices[start] >> vertices[end]
        yield job, pairs


def cycles_of(size: int, pairs: Pairs) -> list[list[int]]:
    """All elementary cycles by networkx, each from its smallest vertex on."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(size))
    graph.add_edges_from(pairs)
    rotated = []
    for cycle in nx.simple_cycles(graph):
        least = cycle.index(min(cycle))
        rotated.append(cycle[least:] + cycle[:least])
    return rotated


def closure(size: int, pairs: Pairs) -> list[list[bool]]:
    """Who reaches whom over one edge or more (Warshall)."""
    reach = [[(start, end) in pairs for end in range(size)] for start in range(size)]
    for middle in range(size):
        for start in range(size):
            for end in range(size):
                reach[start][end] |= reach[start][middle] and reach[middle][end]
    return reach


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_cycles_and_loop_edges_of_random_graphs(chunk: int) -> None:
    for job, pairs in random_graphs(chunk):
        names = [vertex.name for vertex in job.vertices]
        expected = cycles_of(len(names), pairs)
        named = [[names[vertex] for vertex in cycle] for cycle in expected]
        assert job.cycles(limit=len(expected)) == sorted(named)
        closing = loop_edges(job)
        arcs = [(edge.tail, edge.entry) for edge in closing]
        assert len(set(arcs)) == len(arcs)
        assert set(arcs) == {(cycle[-1], cycle[0]) for cycle in expected}
        for edge in closing:
            same_arc = [cycle for cycle in expected if (cycle[-1], cycle[0]) == (edge.tail, edge.entry)]
            shortest = min(map(len, same_arc))
            first = min(cycle for cycle in same_arc if len(cycle) == shortest)
            assert edge.cycle == tuple(names[vertex] for vertex in first)


def random_valid_job(number: int) -> Job:
    """Tasks with and without state, loops included, each made reachable and draining."""
    rng = random.Random(f"plan-{number}")
    job = Job("plan", max_iterations=rng.randint(0, 4))
    kinds = [
        "source",
        "sink",
        *rng.choices(("task", "count", "source", "sink"), (6, 4, 1, 1), k=rng.randint(1, 6)),
    ]
    rng.shuffle(kinds)
    for index, kind in enumerate(kinds):
        if kind == "source":
            job.source(f"v{index}", NoSource())
        elif kind == "sink":
            job.sink(f"v{index}", NoSink())
        else:
            limit = rng.choice((None, None, 0, 2))
            job.task(f"v{index}", Count() if kind == "count" else same, max_iterations=limit)
    connected = {
        (start, end)
        for start, end in random_pairs(rng, len(kinds))
        if kinds[start] != "sink" and kinds[end] != "source"
    }
    source, sink = kinds.index("source"), kinds.index("sink")
    reach = closure(len(kinds), sorted(connected))
    for vertex, kind in enumerate(kinds):
        if kind != "source" and not any(
            reach[start][vertex] for start, other in enumerate(kinds) if other == "source"
        ):
            connected.add((source, vertex))
        if kind != "sink" and not any(
            reach[vertex][end] for end, other in enumerate(kinds) if other == "sink"
        ):
            connected.add((vertex, sink))
    for start, end in rng.sample(sorted(connected), len(connected)):
        by = (
            SAME_KEY if kinds[end] == "count" else rng.choice((ROUND_ROBIN, ROUND_ROBIN, SAME_KEY, BROADCAST))
        )
        job.connect(job.vertices[start], job.vertices[end], by=by)
    return job


def check_plan(job: Job, plan: PhysicalPlan) -> None:
    size = len(job.vertices)
    tasks = {vertex.index for vertex in job.vertices if vertex.kind == "task"}
    sources = [vertex.index for vertex in job.vertices if vertex.kind == "source"]
    pairs = [(edge.source, edge.target) for edge in job.edges]
    told = {edge.target for edge in job.edges if edge.by is BROADCAST and edge.target in tasks}
    keyed = [
        (edge.source, edge.target)
        for edge in job.edges
        if edge.target in tasks
        # Tasks that a broadcast reaches all have an instance in each bucket, and are chained to each other.
        and (edge.by is not ROUND_ROBIN or (edge.target in told and edge.source not in told))
    ]
    assert plan.instances == dict.fromkeys(sorted(told), 0)
    assert not told & set(plan.direct), "instances are behind the shuffle"
    memory = [pair for pair in pairs if pair not in keyed]
    reach, near = closure(size, pairs), closure(size, memory)
    targets = [end for _, end in keyed]

    after = [v for v in range(size) if v in targets or any(near[target][v] for target in targets)]
    assert plan.keyed == tuple(after)
    assert plan.direct == tuple(
        v for v in range(size) if v in sources or any(near[start][v] for start in sources)
    )
    assert [(item.source, item.target, item.feedback) for item in plan.exchanges] == [
        (start, end, start in after) for start, end in keyed
    ]

    cycles = cycles_of(size, pairs)
    entries = sorted({cycle[0] for cycle in cycles})
    assert [loop.entry for loop in plan.loops] == entries
    assert [loop.slot for loop in plan.loops] == list(range(len(entries)))
    closing = {(cycle[-1], cycle[0]) for cycle in cycles}
    for loop in plan.loops:
        own = job.vertices[loop.entry].max_iterations
        assert loop.limit == (job.max_iterations if own is None else own)
        inner = closure(size, [(a, b) for a, b in pairs if min(a, b) >= loop.entry])
        around = [v for v in range(size) if inner[loop.entry][v] and inner[v][loop.entry]]
        assert loop.members == tuple(job.vertices[v].name for v in sorted(around))
        tails = [tail for tail, entry in closing if entry == loop.entry]
        for v in range(size):
            assert plan.live[v][loop.slot] == (v in tails or any(reach[v][tail] for tail in tails))

    for edge in job.edges:
        (hop,) = (hop for hop in plan.hops[edge.source, edge.source_port] if hop.target == edge.target)
        assert (hop.closing is not None) == ((edge.source, edge.target) in closing)
        assert (hop.channel is Channel.EXCHANGE) == ((edge.source, edge.target) in keyed)
        if hop.closing is not None:
            assert plan.loops[hop.closing.slot].entry == edge.target
            assert list(hop.closing.cycle) in job.cycles(limit=len(cycles))

    region_of = {v: region.index for region in plan.regions for v in region.vertices}
    assert sorted(v for region in plan.regions for v in region.vertices) == list(range(size))
    both_ways = closure(size, memory + [(end, start) for start, end in memory])
    for a in range(size):
        for b in range(size):
            assert (region_of[a] == region_of[b]) == (a == b or both_ways[a][b])


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_plans_of_random_jobs(chunk: int) -> None:
    for number in range(chunk, PLANS, CHUNKS):
        job = random_valid_job(number)
        check_plan(job, compile_plan(job))
        assert job.explain()


class Hostile:
    """A value that refuses everything that can be asked of a value."""

    __hash__ = None  # type: ignore[assignment]

    def __refuse(self, *_: Any) -> Any:
        raise RuntimeError("hostile")

    __repr__ = __str__ = __eq__ = __ne__ = __bool__ = __len__ = __iter__ = __lt__ = __int__ = __refuse
    __format__ = __getitem__ = __contains__ = __index__ = __refuse


class Sly(str):
    """A string that cannot be shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise RuntimeError("hostile")


NONSENSE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5000),
    st.builds(lambda: 10**5000),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.sampled_from(
        ["a", "b", "zookeeper", "throughput", "latency", "exactly-once", "fail", "in", "out", "left"]
    ),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), st.integers(), max_size=2),
    st.builds(Hostile),
    st.builds(lambda: [Hostile()]),
    st.builds(lambda: {"priority": Hostile(), "spark.x": Hostile()}),
    st.builds(Sly, st.text(max_size=3)),
    st.builds(QoS, st.builds(Hostile), st.floats(), st.integers()),
    st.sampled_from([NoSource, NoSink, Join, Count, int, type, same, len, Quiet, SAME_KEY, nx]),
    st.builds(NoSource),
    st.builds(NoSink),
    st.builds(Join),
    st.builds(Count),
)


class AnyPorts(Quiet):
    def __init__(self, inputs: Any, outputs: Any, sync: Any) -> None:
        self.inputs, self.outputs, self.sync = inputs, outputs, sync


PORTS = st.one_of(
    NONSENSE, st.lists(NONSENSE, max_size=3), st.lists(st.sampled_from("abc"), max_size=3).map(tuple)
)
OPERATORS = st.one_of(NONSENSE, st.builds(AnyPorts, PORTS, PORTS, NONSENSE))


@st.composite
def nonsense_jobs(draw: st.DrawFn) -> Job:
    setting_names = ["mode", "guarantee", "k", "qos", "max_iterations", "parallelism", "on_error", "spark"]
    job = Job(draw(NONSENSE), **draw(st.dictionaries(st.sampled_from(setting_names), NONSENSE)))
    other = Job("other")
    vertices = [other.task("stranger", same)]
    for kind in draw(st.lists(st.sampled_from(["source", "task", "task", "sink"]), max_size=6)):
        operator: Any = draw(OPERATORS)
        if kind == "source":
            vertices.append(job.source(draw(NONSENSE), operator))
        elif kind == "sink":
            vertices.append(job.sink(draw(NONSENSE), operator))
        else:
            options = draw(
                st.dictionaries(st.sampled_from(["parallelism", "max_iterations", "qos", "config"]), NONSENSE)
            )
            vertices.append(job.task(draw(NONSENSE), operator, **options))
    for _ in range(draw(st.integers(0, 8))):
        start, end = draw(st.sampled_from(vertices)), draw(st.sampled_from(vertices))
        left: Any = start if draw(st.booleans()) else start[draw(NONSENSE)]
        right: Any = end if draw(st.booleans()) else end[draw(NONSENSE)]
        if draw(st.booleans()):
            left >> right
        else:
            job.connect(left, right, by=draw(NONSENSE))
    return job


@settings(max_examples=2 * settings().max_examples, deadline=None, suppress_health_check=list(HealthCheck))
@given(nonsense_jobs())
def test_validation_raises_graph_errors_only(job: Job) -> None:
    problems = find_problems(job)
    if problems:
        with pytest.raises(GraphError) as caught:
            job.validate()
        assert caught.value.problems == problems
        assert str(caught.value)
        assert all(problem.code and problem.message for problem in problems)
    else:
        job.validate()
    assert len(job.adjacency()) == len(job.vertices)
    job.cycles()
    json.loads(job.to_json())
