"""The physical plan of small jobs, by hand."""

from __future__ import annotations

import pickle

import pytest
from tests.unit.graph.samples import NoSink, NoSource, file_types, line_job, ranking, same, wordcount

from penstock.errors import GraphError
from penstock.graph.aggregations import Count
from penstock.graph.edge import BROADCAST, SAME_KEY, Distribution
from penstock.graph.job import Job
from penstock.plan.physical_plan import (
    Channel,
    Exchange,
    Hop,
    Loop,
    LoopClosure,
    PhysicalPlan,
    Region,
    compile_plan,
)


def test_the_word_count() -> None:
    plan = compile_plan(wordcount())
    assert plan == PhysicalPlan(
        job="wordcount",
        regions=(Region(0, (0, 1), ("source lines",)), Region(1, (2, 3), ("exchange split->count",))),
        loops=(),
        exchanges=(Exchange(1, "out", 2, "in", feedback=False),),
        hops={
            (0, "out"): (Hop(1, "in", Channel.MEMORY, None),),
            (1, "out"): (Hop(2, "in", Channel.EXCHANGE, None, Distribution.BY_KEY),),
            (2, "out"): (Hop(3, "in", Channel.MEMORY, None),),
        },
        live=((), (), (), ()),
        direct=(0, 1),
        keyed=(2, 3),
    )
    assert plan.needs_exchange


def test_the_loops_of_fig_9_share_one_counter() -> None:
    job = file_types(max_iterations=3)
    plan = compile_plan(job)
    assert plan.loops == (Loop(slot=0, entry=1, limit=3, members=("V0", "V4", "V5", "V6")),)
    assert plan.regions == (Region(0, tuple(range(9)), ("source files",)),)
    closings = {
        (job.vertices[start].name, hop.closing)
        for (start, _), hops in plan.hops.items()
        for hop in hops
        if hop.closing
    }
    assert closings == {
        ("V5", LoopClosure(0, 3, "V0", ("V0", "V4", "V5"))),
        ("V6", LoopClosure(0, 3, "V0", ("V0", "V4", "V6"))),
    }
    live = [vertex.name for vertex in job.vertices if plan.live[vertex.index][0]]
    assert live == ["files", "V0", "V4", "V5", "V6"]
    assert (plan.needs_exchange, plan.keyed) == (False, ())


def test_hops_are_by_port_in_edge_order() -> None:
    job = file_types()
    hops = compile_plan(job).hops
    assert [job.vertices[hop.target].name for hop in hops[1, "unknown"]] == ["V4"]
    assert [job.vertices[hop.target].name for hop in hops[5, "out"]] == ["V5", "V6"]


def test_the_limit_of_the_entry_goes_before_the_limit_of_the_job() -> None:
    job = file_types(max_iterations=3)
    job.vertex("V0").max_iterations = 0
    plan = compile_plan(job)
    assert plan.loops[0].limit == 0
    assert plan.hops[6, "out"][0].closing == LoopClosure(0, 0, "V0", ("V0", "V4", "V5"))


def test_a_loop_through_keyed_stages() -> None:
    job = ranking()
    plan = compile_plan(job)
    names = [vertex.name for vertex in job.vertices]
    assert [(names[item.source], names[item.target], item.feedback) for item in plan.exchanges] == [
        ("join", "total", False),
        ("total", "rank", True),
        ("rank", "total", True),
        ("rank", "copy", True),
    ]
    assert [(names[loop.entry], loop.slot, loop.limit) for loop in plan.loops] == [
        ("total", 0, 5),
        ("settle", 1, 5),
    ]
    assert [names[vertex] for vertex in plan.direct] == ["left", "right", "join", "rest"]
    assert [names[vertex] for vertex in plan.keyed] == ["total", "rank", "settle", "results", "copy"]
    assert [region.entered_by for region in plan.regions] == [
        ("source left", "source right"),
        ("exchange join->total", "exchange rank->total"),
        ("exchange total->rank", "exchange rank->copy"),
    ]
    assert plan.live[5] == (False, True), "behind the keyed loop only the loop in memory still counts"
    assert any(exchange.feedback for exchange in plan.exchanges)


def test_a_keyed_edge_into_a_sink_stays_in_memory() -> None:
    job = Job("job")
    source, sink = job.source("source", NoSource()), job.sink("sink", NoSink())
    job.connect(source, sink, by=SAME_KEY)
    plan = compile_plan(job)
    assert plan.hops[0, "out"] == (Hop(1, "in", Channel.MEMORY, None),)
    assert not plan.needs_exchange


def test_a_keyed_edge_into_a_task_without_state_is_an_exchange() -> None:
    job = Job("job")
    source, task, sink = job.source("source", NoSource()), job.task("task", same), job.sink("sink", NoSink())
    job.connect(source, task, by=SAME_KEY)
    task >> sink
    assert compile_plan(job).hops[0, "out"][0].channel is Channel.EXCHANGE


def test_broadcast_goes_through_the_shuffle_to_every_instance_of_a_task() -> None:
    job = Job("job")
    source, sink = job.source("source", NoSource()), job.sink("sink", NoSink())
    wide, plain = job.task("wide", same, parallelism=4), job.task("plain", same)
    for target in (wide, plain, sink):
        job.connect(source, target, by=BROADCAST)
    [wide, plain] >> sink
    plan = compile_plan(job)
    to_all, kept = (Channel.EXCHANGE, Distribution.TO_ALL), (Channel.MEMORY, Distribution.CHAINED)
    assert [(hop.channel, hop.distribution) for hop in plan.hops[0, "out"]] == [to_all, to_all, kept]
    assert plan.instances == {wide.index: 4, plain.index: 0}


@pytest.mark.parametrize(
    ("of_job", "of_sender", "of_target", "distribution", "instances"),
    [
        (None, None, None, Distribution.CHAINED, None),
        (4, None, None, Distribution.CHAINED, None),
        (None, 3, 3, Distribution.CHAINED, 3),
        (None, 3, None, Distribution.CHAINED, None),  # Nobody says how many: it runs where its records are.
        (4, 4, None, Distribution.CHAINED, 4),
        (4, 4, 4, Distribution.CHAINED, 4),
        (4, 3, None, Distribution.IN_TURN, 4),
        (None, None, 3, Distribution.IN_TURN, 3),
        (
            4,
            None,
            4,
            Distribution.IN_TURN,
            4,
        ),  # The sender runs in as many places as the source has partitions.
        (4, None, 3, Distribution.IN_TURN, 3),
        (None, 2, 3, Distribution.IN_TURN, 3),
    ],
)
def test_records_are_dealt_out_where_numbers_of_instances_differ(
    of_job: int | None,
    of_sender: int | None,
    of_target: int | None,
    distribution: Distribution,
    instances: int | None,
) -> None:
    job = Job("job", parallelism=of_job)
    sender = job.task("sender", same, parallelism=of_sender)
    target = job.task("target", same, parallelism=of_target)
    job.source("source", NoSource()) >> sender >> target >> job.sink("sink", NoSink())
    plan = compile_plan(job)
    assert [hop.distribution for hop in plan.hops[sender.index, "out"]] == [distribution]
    assert [hop.distribution for hop in plan.hops[target.index, "out"]] == [Distribution.CHAINED], (
        "into a sink"
    )
    assert plan.instances.get(target.index) == instances


@pytest.mark.parametrize("of_job", [None, 4])
def test_a_source_and_a_stateful_task_have_no_instances_to_chain_from(of_job: int | None) -> None:
    job = Job("job", parallelism=of_job)
    source, count = job.source("source", NoSource()), job.task("count", Count())
    first, second = job.task("first", same, parallelism=4), job.task("second", same, parallelism=4)
    source >> first >> job.sink("one", NoSink())
    source >> count >> second >> job.sink("other", NoSink())
    plan = compile_plan(job)
    assert [hop.distribution for hop in plan.hops[source.index, "out"]] == [
        Distribution.IN_TURN,
        Distribution.BY_KEY,
    ]
    assert [hop.distribution for hop in plan.hops[count.index, "out"]] == [Distribution.IN_TURN]
    assert not {first.index, second.index} & set(plan.direct)


def test_a_side_port_is_not_chained_to_instances() -> None:
    """What does not fit a task is put aside by its sender, so it does not come from an instance."""
    job = Job("job")
    task, mend = job.task("task", same, parallelism=2), job.task("mend", same, parallelism=2)
    sink = job.sink("sink", NoSink())
    job.source("source", NoSource()) >> task >> sink
    task["errors"] >> mend >> sink
    plan = compile_plan(job)
    assert [hop.distribution for hop in plan.hops[task.index, "errors"]] == [Distribution.IN_TURN]


def test_a_number_of_the_job_reaches_all_tasks_behind_instances() -> None:
    """A task does not get some of its records in instances, and others where a source has them."""
    job = Job("job", parallelism=4)
    source, wide = job.source("source", NoSource()), job.task("wide", same, parallelism=2)
    first, second, apart = (job.task(name, same) for name in ("first", "second", "apart"))
    source >> wide >> first >> second >> job.sink("sink", NoSink())
    source >> second
    source >> apart >> job.sink("other", NoSink())
    plan = compile_plan(job)
    assert plan.instances == {wide.index: 2, first.index: 4, second.index: 4}
    assert [hop.distribution for hop in plan.hops[first.index, "out"]] == [Distribution.CHAINED]
    assert [hop.distribution for hop in plan.hops[source.index, "out"]] == [
        Distribution.IN_TURN,
        Distribution.IN_TURN,
        Distribution.CHAINED,
    ]


def test_data_is_not_chained_in_front_of_the_shuffle_into_what_is_broadcast_to() -> None:
    job = Job("job", parallelism=3)
    data, rules = job.source("data", NoSource()), job.source("rules", NoSource())
    a, b = job.task("a", same, parallelism=3), job.task("b", same, parallelism=3)
    data >> a >> b >> job.sink("sink", NoSink())
    job.connect(rules, b, by=BROADCAST)
    plan = compile_plan(job)
    assert [hop.distribution for hop in plan.hops[a.index, "out"]] == [Distribution.CHAINED]
    assert not {a.index, b.index} & set(plan.direct), "both run behind the shuffle, and there only"


def test_what_meets_a_broadcast_is_dealt_out_to_the_same_instances() -> None:
    job = Job("job")
    data, rules = job.source("data", NoSource()), job.source("rules", NoSource())
    before = job.task("before", same, parallelism=2)
    apply = job.task("apply", same, parallelism=2)
    data >> apply
    data >> before >> apply
    job.connect(rules, apply, by=BROADCAST)
    apply >> job.sink("sink", NoSink())
    hops = compile_plan(job).hops
    assert [hop.distribution for hop in hops[data.index, "out"]] == [
        Distribution.IN_TURN,
        Distribution.IN_TURN,
    ]
    assert [hop.distribution for hop in hops[before.index, "out"]] == [Distribution.CHAINED]
    assert [hop.distribution for hop in hops[rules.index, "out"]] == [Distribution.TO_ALL]


def test_a_vertex_can_run_on_both_sides_of_the_shuffle() -> None:
    job = Job("both", max_iterations=2)
    source, count, again = (
        job.source("source", NoSource()),
        job.task("count", Count()),
        job.task("again", same),
    )
    source >> again >> count >> again >> job.sink("sink", NoSink())
    plan = compile_plan(job)
    assert plan.direct == (0, 2, 3)
    assert plan.keyed == (1, 2, 3)
    assert plan.exchanges == (Exchange(2, "out", 1, "in", feedback=True),)
    assert plan.regions == (Region(0, (0, 1, 2, 3), ("source source", "exchange again->count")),)


def test_a_plan_is_plain_data() -> None:
    for build in (wordcount, file_types, ranking):
        plan = compile_plan(build())
        assert pickle.loads(pickle.dumps(plan)) == plan


def test_only_a_valid_job_has_a_plan() -> None:
    with pytest.raises(GraphError):
        compile_plan(file_types(max_iterations=None))
    with pytest.raises(GraphError):
        line_job("a b").explain()
