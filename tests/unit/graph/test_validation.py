"""Every problem code, and that all problems of a job come together."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.graph.samples import (
    Classify,
    Join,
    NoSink,
    NoSource,
    Quiet,
    file_types,
    line_job,
    ranking,
    same,
    wordcount,
)

from penstock.errors import GraphError, Problem
from penstock.graph.aggregations import Count
from penstock.graph.edge import BROADCAST, ROUND_ROBIN, SAME_KEY, buckets_of, slots_of
from penstock.graph.error_policy import Retry
from penstock.graph.job import Job
from penstock.graph.qos import QoS
from penstock.graph.tasks import ArrowTask, CombiningTask, FunctionTask, Sql, StatefulTask, Task
from penstock.graph.validation import find_problems
from penstock.graph.windows import CountWindow, TimeWindow


def codes(job: Job) -> list[str]:
    return [problem.code for problem in find_problems(job)]


def found(job: Job, code: str) -> list[Problem]:
    return [problem for problem in find_problems(job) if problem.code == code]


def line_with(task: Any, **options: Any) -> Job:
    job = Job("line")
    job.source("source", NoSource()) >> job.task("task", task, **options) >> job.sink("sink", NoSink())
    return job


@pytest.mark.parametrize("build", [line_job, wordcount, file_types, ranking])
def test_sound_jobs(build: Callable[[], Job]) -> None:
    build().validate()


def test_all_problems_come_together_in_a_fixed_order() -> None:
    job = Job("a b", mode="fast", max_iterations=-1)
    job.task("x", 5, parallelism=0)  # type: ignore[arg-type]
    with pytest.raises(GraphError) as caught:
        job.validate()
    assert [problem.code for problem in caught.value.problems] == [
        "bad-name",
        "bad-mode",
        "bad-max-iterations",
        "bad-parallelism",
        "bad-task",
        "no-source",
        "no-sink",
        "unreachable",
        "dead-end",
    ]
    assert caught.value.job == "a b"
    assert "job 'a b' has 9 problems" in str(caught.value)
    assert "[bad-parallelism] vertex 'x': parallelism must be a whole number from 1" in str(caught.value)


def test_an_empty_job() -> None:
    assert codes(Job("empty")) == ["no-source", "no-sink"]


@pytest.mark.parametrize(
    "name", ["", ".a", "a/b", "a b", "..", "a..b", "@a", "-a", "é", "a\n", "a" * 201, "zookeeper"]
)
def test_bad_names(name: str) -> None:
    assert codes(line_job(name)) == ["bad-name"]
    job = line_job()
    job.vertices[1].name = name
    assert found(job, "bad-name") == [Problem("bad-name", found(job, "bad-name")[0].message, name)]


@pytest.mark.parametrize("name", [None, 5, b"a", ["a"], {}, object()])
def test_names_that_are_no_strings(name: Any) -> None:
    job = line_job(name)
    for vertex in job.vertices:
        vertex.name = name
    assert codes(job) == ["bad-name"] * 4
    assert job.cycles() == []
    assert job.to_json()


@pytest.mark.parametrize("name", ["a", "0", "lines-2.raw_x", "a" * 200, "Zookeeper", "zookeeper2"])
def test_good_names(name: str) -> None:
    assert codes(line_job(name)) == []


def test_duplicate_names_are_reported_once_a_name() -> None:
    job = line_job()
    for vertex in job.vertices:
        vertex.name = "same"
    assert [(problem.vertex, problem.message) for problem in found(job, "duplicate-name")] == [
        ("same", "3 vertices are named 'same': rename all but one")
    ]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"mode": "fast"}, "bad-mode"),
        ({"mode": None}, "bad-mode"),
        ({"mode": []}, "bad-mode"),
        ({"mode": "latency"}, "unsupported"),
        ({"guarantee": "maybe"}, "bad-guarantee"),
        ({"guarantee": 1}, "bad-guarantee"),
        ({"durability": "disk"}, "bad-durability"),
        ({"k": -1}, "bad-k"),
        ({"k": True}, "bad-k"),
        ({"k": "1"}, "bad-k"),
        ({"k": 1, "guarantee": "at-most-once"}, "bad-k"),
        ({"replicas": {"k": 1, "warm_standby": True}}, "bad-warm-standby"),
        ({"replicas": {"warm_standby": "cold"}}, "bad-warm-standby"),
        ({"replicas": {"standby": "warm"}}, "bad-replicas"),
        ({"k": 101}, "bad-k"),
        ({"replicas": {"recovery": "never"}}, "bad-recovery"),
        ({"interval": "soon"}, "bad-interval"),
        ({"interval": "0s"}, "bad-interval"),
        ({"interval": 5}, "bad-interval"),
        ({"replicas": {"publisher": "primary"}}, "bad-publisher"),
        ({"on_error": "ignore"}, "bad-on-error"),
        ({"on_error": {}}, "bad-on-error"),
        ({"on_error": Retry(times=-1)}, "bad-on-error"),
        ({"on_error": Retry(delay="soon")}, "bad-on-error"),
        ({"on_error": Retry(then="explode")}, "bad-on-error"),
        ({"spark": 5}, "bad-spark"),
        ({"spark": [("a", 1)]}, "bad-spark"),
        ({"spark": {1: "a"}}, "bad-spark"),
        ({"spark": {"a": None}}, "bad-spark"),
        ({"max_iterations": -1}, "bad-max-iterations"),
        ({"max_iterations": True}, "bad-max-iterations"),
        ({"max_iterations": 1.0}, "bad-max-iterations"),
        ({"parallelism": 0}, "bad-parallelism"),
        ({"parallelism": 4097}, "bad-parallelism"),
        ({"parallelism": False}, "bad-parallelism"),
        ({"qos": 5}, "bad-qos"),
        ({"qos": QoS(priority=11)}, "bad-qos"),
        ({"qos": {"speed": 1}}, "bad-qos"),
    ],
)
def test_bad_settings(settings: dict[str, Any], code: str) -> None:
    problems = find_problems(line_job(**settings))
    assert [(problem.code, problem.vertex, problem.port) for problem in problems] == [(code, None, None)]


@pytest.mark.parametrize(
    "settings",
    [
        {"max_iterations": 0},
        {"parallelism": 1},
        {"parallelism": 4096},
        {"qos": {"priority": 0}},
        {"spark": {"a": "b", "c": 1, "d": 0.5, "e": True}},
    ],
)
def test_good_settings(settings: dict[str, Any]) -> None:
    assert codes(line_job(**settings)) == []


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"parallelism": "4"}, "bad-parallelism"),
        ({"max_iterations": -3}, "bad-max-iterations"),
        ({"qos": {"max_loss": 7}}, "bad-qos"),
        ({"config": 5}, "bad-config"),
        ({"config": {1: 2}}, "bad-config"),
    ],
)
def test_bad_options_of_a_task(options: dict[str, Any], code: str) -> None:
    problems = find_problems(line_with(same, **options))
    assert [(problem.code, problem.vertex) for problem in problems] == [(code, "task")]


class Together(Quiet):
    inputs = ("left", "right")
    sync = True


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (ArrowTask(same), "ArrowTask runs where its columns are"),
        (Sql("SELECT * FROM input"), "Sql runs where its columns are"),
    ],
)
def test_parallelism_where_it_would_say_nothing(task: Any, reason: str) -> None:
    job = Job("job")
    vertex = job.task("task", task, parallelism=4, input_schema="n long")
    job.source("source", NoSource()) >> vertex >> job.sink("sink", NoSink())
    [problem] = find_problems(job)
    assert (problem.code, problem.vertex) == ("bad-parallelism", "task")
    assert reason in problem.message
    vertex.parallelism = None
    assert find_problems(job) == []


@pytest.mark.parametrize("task", [Count(), Together()])
def test_tasks_with_state_share_one_number_of_instances(task: Any) -> None:
    job = Job("job")
    vertex, other = job.task("task", task, parallelism=4), job.task("other", Count())
    source, sink = job.source("source", NoSource()), job.sink("sink", NoSink())
    for port in vertex.inputs:
        source >> vertex[port]
    source >> other >> sink
    vertex >> sink
    assert find_problems(job) == []
    assert slots_of(job) == 4, "all tasks with state run in the same Spark tasks"
    job.parallelism = 2
    assert slots_of(job) == 4, "the number of a task precedes the default of its job"
    other.parallelism = 3
    [problem] = find_problems(job)
    assert (problem.code, problem.vertex) == ("bad-parallelism", "other")
    assert "run in the same 4 Spark tasks" in problem.message
    other.parallelism, job.buckets = None, 3
    [problem] = find_problems(job)
    assert (problem.code, problem.vertex) == ("bad-parallelism", "task")
    assert "divided into 3 buckets" in problem.message


def test_the_number_of_buckets_is_declared_or_kept_or_the_default() -> None:
    assert buckets_of(Job("job"), None) == 128
    assert buckets_of(Job("job", parallelism=200), None) == 200
    assert buckets_of(Job("job"), 2) == 2, "an existing job keeps its own"
    assert buckets_of(Job("job", buckets=64), 2) == 64


class Needy(Quiet):
    def __init__(self, need: int) -> None:
        self.need = need


class NoExecute(Task):
    pass


class NoUpdate(StatefulTask):
    pass


class NoMerge(CombiningTask):
    def lift(self, value: Any) -> Any:
        return value


async def later(record: Any) -> None:
    return None


@pytest.mark.parametrize(
    "task",
    [
        5,
        None,
        "split",
        NoSource(),
        NoSink,
        Needy,
        FunctionTask,
        FunctionTask(5),  # type: ignore[arg-type]
        NoExecute,
        NoUpdate,
        NoMerge,
        later,
        lambda: 1,
        lambda a, b: 1,
    ],
)
def test_bad_tasks(task: Any) -> None:
    problems = find_problems(line_with(task))
    assert [(problem.code, problem.vertex) for problem in problems] == [("bad-task", "task")]


@pytest.mark.parametrize("end", [5, None, same, NoSource, NoSink])
def test_bad_ends(end: Any) -> None:
    job = Job("job")
    job.source("source", end) >> job.sink("sink", end)
    assert codes(job) == ["bad-source", "bad-sink"]


@pytest.mark.parametrize("ports", ["left", (), None, 5, ("a", "a"), ("a", 5), ("a b",), (["a"],), {"a"}])
def test_bad_ports(ports: Any) -> None:
    class Odd(Quiet):
        inputs = ports

    class Even(Quiet):
        outputs = ports

    for task in (Odd, Even):
        problems = find_problems(line_with(task))
        assert [(problem.code, problem.vertex) for problem in problems] == [("bad-ports", "task")]


def test_ports_that_cannot_be_read() -> None:
    class Broken(Quiet):
        @property
        def inputs(self) -> Any:  # type: ignore[override]
            raise RuntimeError("no ports today")

    assert "no ports today" in found(line_with(Broken), "bad-ports")[0].message


def test_ports_may_be_a_list() -> None:
    class Listed(Quiet):
        inputs = ["left"]  # type: ignore[assignment] # noqa: RUF012

    assert codes(line_with(Listed)) == []


def _aligned(left: Any, right: Any) -> Job:
    class Aligned(Join):
        sync = True

    job = Job("job")
    source, sink, aligned = job.source("s", NoSource()), job.sink("t", NoSink()), job.task("aligned", Aligned)
    job.connect(source, aligned["left"], by=left)
    job.connect(source, aligned["right"], by=right)
    [aligned["matched"], aligned["rest"]] >> sink
    return job


def test_synchronous_ports_are_aligned_in_one_way() -> None:
    assert codes(_aligned(None, None)) == []
    assert codes(_aligned(ROUND_ROBIN, ROUND_ROBIN)) == []
    assert codes(_aligned(SAME_KEY, ROUND_ROBIN)) == ["bad-partitioning"]
    assert codes(_aligned(BROADCAST, BROADCAST)) == ["bad-partitioning", "bad-partitioning"]


def test_side_streams_can_be_connected() -> None:
    job = Job("job", max_iterations=1)
    source, task, sink = job.source("s", NoSource()), job.task("t", len), job.sink("out", NoSink())
    aside = job.sink("aside", NoSink())
    source >> task >> sink
    [source["errors"], task["errors"], sink["errors"]] >> aside
    assert codes(job) == []
    task["late"] >> aside
    task["discarded"] >> aside
    assert codes(job) == ["unknown-port", "unknown-port"]
    lonely = Job("lonely")
    lonely.source("s", NoSource()) >> lonely.task("t", len)
    lonely.vertex("t")["errors"] >> lonely.sink("out", NoSink())
    assert codes(lonely) == ["unconnected-port"]


@pytest.mark.parametrize(
    "window",
    [
        5,
        TimeWindow("soon"),
        TimeWindow("10s", slide="20s"),
        TimeWindow(0),
        TimeWindow("1s", watermark="-1s"),
        TimeWindow("1s", time="lunch"),
        TimeWindow("1d", slide="1ms"),
        CountWindow(0),
        CountWindow(2, slide=3),
        CountWindow(True),
    ],
)
def test_bad_windows(window: Any) -> None:
    job = Job("job")
    job.source("s", NoSource()) >> job.task("t", Count(), window=window) >> job.sink("out", NoSink())
    assert codes(job) == ["bad-window"]


def test_a_window_needs_a_place() -> None:
    job = Job("job", max_iterations=2)
    source, sink = job.source("s", NoSource(), window=CountWindow(2)), job.sink("out", NoSink())
    function, count = job.task("f", len, window=CountWindow(2)), job.task("c", Count(), window=CountWindow(2))
    other = job.source("other", NoSource())
    source >> function >> count >> sink
    count >> function
    other >> function
    assert codes(job) == ["bad-window"] * 4


def test_a_stateful_task_has_one_output() -> None:
    class Forked(Count):
        outputs = ("a", "b")

    job = Job("job")
    forked = job.task("forked", Forked)
    job.source("s", NoSource()) >> forked
    [forked["a"], forked["b"]] >> job.sink("t", NoSink())
    assert codes(job) == ["unsupported"]


def test_sources_take_nothing_in_and_sinks_give_nothing_out() -> None:
    job = line_job()
    source, task, sink = job.vertices
    task >> source
    sink >> task
    job.max_iterations = 1
    problems = [(problem.code, problem.vertex) for problem in find_problems(job)]
    assert problems == [("source-with-input", "source"), ("sink-with-output", "sink")]


def test_unreachable_and_dead_end() -> None:
    job = line_job(max_iterations=1)
    source, _, sink = job.vertices
    job.task("no-input", same) >> sink
    source >> job.task("no-output", same)
    ring, around = job.task("ring", same), job.task("around", same)
    ring >> around >> ring
    job.source("lonely", NoSource())
    job.sink("empty", NoSink())
    assert [(problem.code, problem.vertex) for problem in find_problems(job)] == [
        ("unreachable", "no-input"),
        ("dead-end", "no-output"),
        ("unreachable", "ring"),
        ("dead-end", "ring"),
        ("unreachable", "around"),
        ("dead-end", "around"),
        ("dead-end", "lonely"),
        ("unreachable", "empty"),
    ]


def test_unknown_ports_list_what_there_is() -> None:
    job = line_job(max_iterations=1)
    source, task, sink = job.vertices
    source["data"] >> sink["table"]
    task[5] >> task  # type: ignore[index]
    problems = [(problem.vertex, problem.port, problem.message) for problem in found(job, "unknown-port")]
    assert problems == [
        ("source", "data", "edge 'source' -> 'sink': 'source' has no output port 'data': it has 'out'"),
        ("sink", "table", "edge 'source' -> 'sink': 'sink' has no input port 'table': it has 'in'"),
        ("task", "5", "edge 'task' -> 'task': 'task' has no output port '5': it has 'out'"),
    ]


def test_a_vertex_with_several_ports_needs_a_choice() -> None:
    job = Job("job")
    source, join, sink = job.source("source", NoSource()), job.task("join", Join), job.sink("sink", NoSink())
    source >> join["left"] >> sink
    source >> join["right"]
    join["rest"] >> sink
    problems = find_problems(job)
    assert [(problem.code, problem.vertex, problem.port) for problem in problems] == [
        ("unknown-port", "join", ""),
        ("unconnected-port", "join", "matched"),
    ]
    assert "choose 'matched', 'rest', as in join[\"matched\"]" in problems[0].message


def test_each_declared_port_needs_an_edge() -> None:
    job = Job("job")
    source, sort, sink = (
        job.source("source", NoSource()),
        job.task("sort", Classify),
        job.sink("sink", NoSink()),
    )
    source >> sort
    sort["text"] >> sink
    assert [(problem.code, problem.port) for problem in find_problems(job)] == [
        ("unconnected-port", "image"),
        ("unconnected-port", "video"),
        ("unconnected-port", "unknown"),
    ]


def test_duplicate_edges() -> None:
    job = line_job()
    source, task, _ = job.vertices
    source >> task
    job.connect(source["out"], task["in"], by=BROADCAST)
    assert [(problem.code, problem.vertex, problem.port) for problem in find_problems(job)] == [
        ("duplicate-edge", "source", "out")
    ]
    assert "was added 3 times" in find_problems(job)[0].message


def test_edges_between_jobs_are_wrong_in_both() -> None:
    one, other = line_job("one"), line_job("other")
    one.vertex("task") >> other.vertex("task")
    assert [(problem.code, problem.vertex) for problem in find_problems(one)] == [("foreign-vertex", "task")]
    assert [(problem.code, problem.vertex) for problem in find_problems(other)] == [
        ("foreign-vertex", "task")
    ]
    assert "belongs to job 'other'" in find_problems(one)[0].message
    assert "belongs to job 'one'" in find_problems(other)[0].message


def test_connecting_the_vertices_of_another_job_is_wrong_here_only() -> None:
    one, other = line_job("one"), line_job("other")
    one.connect(other.vertex("source"), other.vertex("sink"))
    assert (codes(one), codes(other)) == (["foreign-vertex"], [])


@pytest.mark.parametrize("by", ["same-key", 5, [], object()])
def test_an_unknown_partitioning(by: Any) -> None:
    job = line_job()
    job.connect(job.vertex("source"), job.vertex("sink"), by=by)
    assert [(problem.code, problem.vertex, problem.port) for problem in find_problems(job)] == [
        ("bad-partitioning", "sink", "in")
    ]


@pytest.mark.parametrize("by", [ROUND_ROBIN, BROADCAST])
def test_state_needs_its_records_by_key(by: Any) -> None:
    job = Job("job")
    source, count, sink = (
        job.source("source", NoSource()),
        job.task("count", Count()),
        job.sink("sink", NoSink()),
    )
    job.connect(source, count, by=by)
    count >> sink
    assert [(problem.code, problem.vertex) for problem in find_problems(job)] == [
        ("bad-partitioning", "count")
    ]


def test_a_loop_needs_a_limit() -> None:
    problems = find_problems(file_types(max_iterations=None))
    assert [(problem.code, problem.vertex) for problem in problems] == [("cycle-without-limit", "V0")]
    assert "the cycle V0 -> V4 -> V5 -> V0 has no limit" in problems[0].message


def test_the_limit_may_be_the_entry_vertex_s_own() -> None:
    job = file_types(max_iterations=None)
    job.vertex("V4").max_iterations = 1
    assert codes(job) == ["cycle-without-limit"]
    job.vertex("V0").max_iterations = 0
    assert codes(job) == []


def test_each_entry_is_reported_once() -> None:
    job = file_types(max_iterations=None)
    v5 = job.vertex("V5")
    v5 >> [v5, job.vertex("V4")]
    assert [problem.vertex for problem in found(job, "cycle-without-limit")] == ["V0", "V4", "V5"]


def test_the_reference_lists_every_code() -> None:
    root = Path(__file__).parents[3]
    table = (root / "docs/reference/graph.md").read_text(encoding="utf-8").partition("## Problems")[2]
    documented = re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)
    rules = [*(root / "src/penstock/graph/rules").glob("*.py"), root / "src/penstock/graph/operators.py"]
    source = "\n".join(path.read_text(encoding="utf-8") for path in rules)
    used = set(re.findall(r'(?:Problem|Fault)\(\s*"([a-z-]+)"', source)) | {"bad-source", "bad-sink"}
    used |= {
        "bad-mode",
        "bad-guarantee",
        "bad-durability",
        "bad-recovery",
        "bad-publisher",
        "bad-warm-standby",
    }
    used |= {"bad-on-error", "bad-sql", "bad-parallelism", "bad-buckets"}
    assert sorted(documented) == sorted(used)


class OneTime(NoSource):
    """A source that gives each record to one process only."""

    replicable = False


@pytest.mark.parametrize("settings", [{"k": 1}, {"replicas": {"warm_standby": True}}])
def test_replicas_need_sources_that_all_of_them_can_read(settings: dict[str, Any]) -> None:
    job = Job("wordcount", **settings)
    job.source("good", NoSource()) >> (out := job.sink("out", NoSink()))
    job.source("lines", OneTime()) >> out
    (problem,) = found(job, "bad-k")
    assert problem.vertex == "lines"
    assert problem.message == (
        "source 'lines': OneTime cannot be read by several replicas: another process that asks for the same"
        " positions gets other records; or run the job with k=0"
    )


def test_without_replicas_any_source_will_do() -> None:
    job = Job("wordcount")
    job.source("lines", OneTime()) >> job.sink("out", NoSink())
    assert codes(job) == []


@pytest.mark.parametrize(("parallelism", "found"), [(None, []), (2, ["bad-recovery"])])
def test_what_is_dealt_out_a_batch_late_cannot_be_recovered_at_the_next_window(
    parallelism: int | None, found: list[str]
) -> None:
    job = Job("late", replicas={"k": 1, "recovery": "next-window"})
    total = job.task("total", Count(), window=TimeWindow(10))
    spread = job.task("spread", same, parallelism=parallelism)
    job.source("in", NoSource()) >> total >> spread >> job.sink("out", NoSink())
    assert codes(job) == found
