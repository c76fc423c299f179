"""Cycles: which there are, where they close, and how much work a search may be."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.unit.graph.samples import Join, file_types, same

from penstock.errors import CycleLimitError
from penstock.graph.graph_algorithms import (
    _TooMuchWorkError,
    elementary_cycles,
    job_arcs,
    loop_edges,
    loop_members,
)
from penstock.graph.job import Job


def graph(size: int, *pairs: tuple[int, int]) -> Job:
    job = Job("graph")
    vertices = [job.task(f"v{index}", same) for index in range(size)]
    for start, end in pairs:
        vertices[start] >> vertices[end]
    return job


def complete(size: int) -> Job:
    return graph(size, *((start, end) for start in range(size) for end in range(size) if start != end))


def test_the_cycles_of_seed_000_fig_9() -> None:
    assert file_types().cycles() == [["V0", "V4", "V5"], ["V0", "V4", "V6"]]


def test_self_loops_and_bidirectional_arcs_are_cycles() -> None:
    assert graph(3, (0, 0), (1, 2), (2, 1)).cycles() == [["v0"], ["v1", "v2"]]


def test_a_cycle_starts_at_its_earliest_vertex_and_the_list_is_sorted() -> None:
    job = Job("job")
    z, m, a = (job.task(name, same) for name in "zma")
    a >> m >> z >> a
    m >> a
    assert job.cycles() == [["m", "a"], ["z", "a", "m"]]


def test_edges_between_the_same_vertices_are_one_arc() -> None:
    job = Job("job")
    join, back = job.task("join", Join), job.task("back", same)
    join["matched"] >> back
    join["rest"] >> back
    back >> join["left"]
    back >> join["right"]
    assert job.cycles() == [["join", "back"]]
    assert [(edge.tail, edge.entry) for edge in loop_edges(job)] == [(1, 0)]


def test_vertices_of_the_same_name_are_told_apart() -> None:
    job = Job("job")
    a, b = job.task("twin", same), job.task("twin", same)
    a >> b >> a
    b >> b
    assert job.cycles() == [["twin"], ["twin", "twin"]]


def test_more_cycles_than_the_limit_are_an_error() -> None:
    job = complete(4)
    assert len(job.cycles(limit=20)) == 20
    with pytest.raises(CycleLimitError, match=r"^job 'graph' has more than 19 elementary cycles"):
        job.cycles(limit=19)


@pytest.mark.parametrize("size", [12, 60, 150])
def test_a_dense_graph_fails_soon(size: int) -> None:
    job = complete(size)
    with pytest.raises(CycleLimitError):
        job.cycles()


def test_a_large_graph_gives_up_with_a_sentence() -> None:
    size = 3000
    steps = [pair for index in range(size - 1) for pair in ((index, index + 1), (index + 1, index))]
    job = graph(size, *steps)
    with pytest.raises(CycleLimitError, match="too large"):
        job.cycles()
    # The search ends by the number of its steps: with a tenth of them it finds less.
    assert 0 < _found_within(job, 30_000) < _found_within(job, 300_000) < size - 1


def _found_within(job: Job, most_steps: int) -> int:
    found = 0
    with suppress(_TooMuchWorkError):
        for _ in elementary_cycles(job_arcs(job), most_steps):
            found += 1
    return found


def test_a_long_ring_is_one_cycle() -> None:
    size = 5000
    job = graph(size, *((index, (index + 1) % size) for index in range(size)))
    assert [len(cycle) for cycle in job.cycles()] == [size]
    assert len(loop_edges(job)[0].cycle) == size


def test_the_cycles_of_fig_9_close_at_one_entry() -> None:
    job = file_types()
    names = [vertex.name for vertex in job.vertices]
    assert [(names[edge.tail], names[edge.entry], edge.cycle) for edge in loop_edges(job)] == [
        ("V5", "V0", ("V0", "V4", "V5")),
        ("V6", "V0", ("V0", "V4", "V6")),
    ]
    assert [names[member] for member in loop_members(job_arcs(job), 1)] == ["V0", "V4", "V5", "V6"]


def test_an_edge_back_closes_nothing_when_no_cycle_starts_there() -> None:
    # 2 -> 1 leads back, but every cycle over it passes vertex 0, which was added first.
    job = graph(3, (0, 2), (2, 1), (1, 0))
    assert [(edge.tail, edge.entry) for edge in loop_edges(job)] == [(1, 0)]


def test_the_representative_cycle_is_a_shortest_one_through_early_vertices() -> None:
    job = graph(5, (0, 1), (0, 2), (0, 3), (3, 2), (1, 4), (2, 4), (4, 0))
    assert [edge.cycle for edge in loop_edges(job)] == [("v0", "v1", "v4")]
