"""Building a graph: vertices, ports, and every form of an edge."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import pytest
from tests.unit.graph.samples import Classify, Join, NoSink, NoSource, Quiet, line_job, same

from penstock.errors import GraphError, Problem
from penstock.graph.aggregations import Count
from penstock.graph.edge import BROADCAST, ROUND_ROBIN, SAME_KEY, Edge, Partitioning
from penstock.graph.job import Job
from penstock.graph.qos import QoS
from penstock.graph.tasks import FunctionTask


def arrows(job: Job) -> list[str]:
    names = [vertex.label for vertex in job.vertices]
    return [
        f"{names[edge.source]}[{edge.source_port}]->{names[edge.target]}[{edge.target_port}]"
        for edge in job.edges
    ]


def test_a_vertex_knows_its_job_kind_and_ports() -> None:
    job = Job("job")
    source, sink = job.source("in", NoSource()), job.sink("out", NoSink())
    join = job.task("join", Join, parallelism=3, max_iterations=2, qos={"priority": 9}, config={"a": 1})
    assert [(vertex.index, vertex.kind) for vertex in job.vertices] == [
        (0, "source"),
        (1, "sink"),
        (2, "task"),
    ]
    assert (source.inputs, source.outputs) == ((), ("out",))
    assert (sink.inputs, sink.outputs) == (("in",), ())
    assert (join.inputs, join.outputs) == (("left", "right"), ("matched", "rest"))
    assert isinstance(join.operator, Join)
    assert (join.job, join.parallelism, join.max_iterations) == (job, 3, 2)
    assert join.qos == QoS(priority=9)
    assert join.config == {"a": 1}
    assert (repr(job), repr(join)) == ("<job 'job': 3 vertices, 0 edges>", "<task 'join'>")


def test_the_job_keeps_its_own_copy_of_settings() -> None:
    spark, config = {"spark.a": 1}, {"b": 2}
    job = Job("job", spark=spark)
    task = job.task("task", same, config=config)
    spark["spark.a"], config["b"] = 5, 5
    assert (job.spark, task.config) == ({"spark.a": 1}, {"b": 2})


@pytest.mark.parametrize("function", [same, lambda record: record, partial(same), len, str.split, print])
def test_a_callable_becomes_a_function_task(function: Any) -> None:
    vertex = Job("job").task("task", function)
    assert isinstance(vertex.operator, FunctionTask)
    assert vertex.operator.function is function
    assert vertex.faults == ()


def test_a_task_is_taken_as_instance_or_as_class() -> None:
    job, count = Job("job"), Count()
    assert job.task("a", count).operator is count
    assert isinstance(job.task("b", Count).operator, Count)


def test_a_chain_connects_left_to_right() -> None:
    job = Job("job")
    a, b, c = (job.task(name, same) for name in "abc")
    assert a >> b >> c is c
    assert arrows(job) == ["a[out]->b[in]", "b[out]->c[in]"]


def test_ports_on_either_side() -> None:
    job = Job("job")
    a, sort, join, b = (
        job.task("a", same),
        job.task("sort", Classify),
        job.task("join", Join),
        job.task("b", same),
    )
    sort["unknown"] >> b
    a >> join["left"]
    sort["text"] >> join["right"]
    assert arrows(job) == ["sort[unknown]->b[in]", "a[out]->join[left]", "sort[text]->join[right]"]


def test_a_chain_goes_on_from_the_default_output_behind_a_port() -> None:
    class Merge(Quiet):
        inputs = ("left", "right")

    job = Job("job")
    a, merge, b = job.task("a", same), job.task("merge", Merge), job.task("b", same)
    left = a >> merge["left"]
    assert repr(left) == "<task 'merge'>['left']"
    left >> b
    a >> merge["right"] >> b["in"] >> a
    assert arrows(job) == [
        "a[out]->merge[left]",
        "merge[out]->b[in]",
        "a[out]->merge[right]",
        "merge[out]->b[in]",
        "b[out]->a[in]",
    ]


def test_fan_out_and_fan_in() -> None:
    job = Job("job")
    a, b, c, d = (job.task(name, same) for name in "abcd")
    join = job.task("join", Join)
    assert a >> [b, c] == [b, c]
    [b, c] >> d
    (c, d) >> join["left"]
    a >> (b, join["right"])
    assert arrows(job) == [
        "a[out]->b[in]",
        "a[out]->c[in]",
        "b[out]->d[in]",
        "c[out]->d[in]",
        "c[out]->join[left]",
        "d[out]->join[left]",
        "a[out]->b[in]",
        "a[out]->join[right]",
    ]


def test_fan_out_and_fan_in_in_one_chain() -> None:
    job = Job("job")
    a, b, c, d = (job.task(name, same) for name in "abcd")
    assert a >> [b, c] >> d is d
    assert arrows(job) == ["a[out]->b[in]", "a[out]->c[in]", "b[out]->d[in]", "c[out]->d[in]"]


@pytest.mark.parametrize("thing", [5, None, "b", object(), [5], [None]])
def test_only_vertices_and_ports_can_be_connected(thing: Any) -> None:
    job = Job("job")
    a = job.task("a", same)
    with pytest.raises(TypeError, match="vertices or ports"):
        a >> thing
    with pytest.raises(TypeError, match="vertices or ports"):
        thing >> a
    with pytest.raises(TypeError, match="vertices or ports"):
        job.connect(a, thing)
    assert job.edges == ()


def test_a_bad_list_connects_nothing() -> None:
    job = Job("job")
    a, b = job.task("a", same), job.task("b", same)
    bad: list[Any] = [b, 5]
    with pytest.raises(TypeError):
        a >> bad
    with pytest.raises(TypeError):
        bad >> a
    assert job.edges == ()


def test_a_vertex_is_not_iterable() -> None:
    vertex: Any = Job("job").task("a", same)
    for walk in (lambda: list(vertex), lambda: "in" in vertex, lambda: list(vertex["in"])):
        with pytest.raises(TypeError):
            walk()


def test_the_default_partitioning_depends_on_the_target() -> None:
    job = Job("job")
    a, count, sink = job.task("a", same), job.task("count", Count()), job.sink("sink", NoSink())
    a >> count >> sink
    job.connect(a, a)
    assert [edge.by for edge in job.edges] == [SAME_KEY, ROUND_ROBIN, ROUND_ROBIN]


def test_connect_takes_ports_and_a_partitioning() -> None:
    job = Job("job")
    join, b = job.task("join", Join), job.task("b", same)
    job.connect(join["rest"], b, by=BROADCAST)
    job.connect(b, join["left"], by=SAME_KEY)
    assert job.edges == (Edge(0, "rest", 1, "in", BROADCAST), Edge(1, "out", 0, "left", SAME_KEY))


def test_partitionings_have_readable_values() -> None:
    assert [member.value for member in Partitioning] == ["round-robin", "same-key", "broadcast"]


def test_default_ports() -> None:
    class Odd(Quiet):
        inputs = ("only",)
        outputs = ("out", "errors")

    job = Job("job")
    odd, join = job.task("odd", Odd), job.task("join", Join)
    odd >> odd
    join >> join
    assert arrows(job) == ["odd[out]->odd[only]", "join[]->join[]"]


def test_facts_of_a_job() -> None:
    job = Job("job")
    for name in ("b", "a"):
        job.source(f"source-{name}", NoSource())
        job.sink(f"sink-{name}", NoSink())
    assert job.sources == ["source-b", "source-a"]
    assert job.sinks == ["sink-b", "sink-a"]
    assert job.vertex("sink-b") is job.vertices[1]
    with pytest.raises(KeyError, match="job 'job' has no vertex 'x'; it has 'source-b'"):
        job.vertex("x")


def test_the_adjacency_matrix_of_seed_000_fig_2() -> None:
    job = Job("fig2")
    v0 = job.source("V0", NoSource())
    v1, v2 = job.task("V1", same), job.task("V2", same)
    v3 = job.sink("V3", NoSink())
    v0 >> [v1, v2] >> v3
    assert job.adjacency() == [[0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert job.cycles() == []
    job.validate()


def test_a_graph_error_survives_pickling() -> None:
    error = GraphError("job", [Problem("no-source", "none", None, None)])
    again = pickle.loads(pickle.dumps(error))
    assert (again.job, again.problems, str(again)) == (error.job, error.problems, str(error))


def test_a_sound_job_is_valid() -> None:
    assert line_job().validate() is None  # type: ignore[func-returns-value]
