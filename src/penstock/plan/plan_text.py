"""Formats a physical plan as text: regions, shuffles and loops."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.graph.edge import SAME_KEY, Distribution
from penstock.graph.job import Job
from penstock.graph.job_document import operator_name
from penstock.graph.sink_delivery import delivery_text
from penstock.graph.tasks import DEFAULT_INPUT, DEFAULT_OUTPUT
from penstock.graph.vertex import SIDE_STREAMS, Vertex
from penstock.graph.windows import EVENT_TIME, CountWindow, TimeWindow
from penstock.plan.exchanges import WINDOW_PORT, Channel, Exchange, Region
from penstock.plan.physical_plan import Hop, Loop, PhysicalPlan, compile_plan

_BEFORE, _AFTER, _BOTH = "before", "after", "before and after"


def explain_job(job: Job) -> str:
    """Compile a job and explain its plan."""
    return explain(compile_plan(job), job)


def explain(plan: PhysicalPlan, job: Job) -> str:
    """Return a description of how Spark will run a job."""
    before = [region for region in plan.regions if _side(plan, region.vertices) != _AFTER]
    after = [region for region in plan.regions if _side(plan, region.vertices) == _AFTER]
    sections = [
        [_heading(job)],
        *(_region(region, plan, job) for region in before),
        _shuffle(plan, job),
        *(_region(region, plan, job) for region in after),
        _loops(plan, job),
        _sinks(job),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def _heading(job: Job) -> str:
    counts = f"{_count(len(job.vertices), 'vertex', 'vertices')}, {_count(len(job.edges), 'edge', 'edges')}"
    replicas = f", {job.k + 1} replicas" if job.k else ""
    return f"Job {job.name}: {counts}; {job.mode} mode, {job.guarantee}{replicas}"


def _region(region: Region, plan: PhysicalPlan, job: Job) -> Iterator[str]:
    side = _side(plan, region.vertices)
    yield (
        f"Region {region.index}, runs {side} the shuffle" if plan.needs_exchange else f"Region {region.index}"
    )
    yield f"│ fed by {', '.join(region.entered_by)}"
    width = max(len(job.vertices[member].name) for member in region.vertices)
    for member in region.vertices:
        vertex = job.vertices[member]
        kind = "stateful" if vertex.stateful else "spark" if member in plan.native.order else vertex.kind
        ways = ", ".join(_ways(plan, job, member))
        corner = "└" if member == region.vertices[-1] else "├"
        line = f"{corner}─ {kind:<8} {vertex.name:<{width}} {f'─▶ {ways}' if ways else ''}".rstrip()
        line += _waiting_note(vertex)
        yield line if side != _BOTH else f"{line}  [{_side(plan, (member,))}]"


def _waiting_note(vertex: Vertex) -> str:
    """Return a note on the windows or synchronised ports of a vertex; empty if it has none."""
    window = vertex.window
    if isinstance(window, TimeWindow):
        late = f", watermark {window.watermark:g} s" if window.time == EVENT_TIME else ""
        return f"  [windows of {window.size:g} s every {window.slide:g} s, {window.time} time{late}]"
    if isinstance(window, CountWindow):
        return f"  [windows of {window.size} records every {window.slide}]"
    return f"  [waits for a record at each of {', '.join(vertex.inputs)}]" if vertex.sync else ""


def _side(plan: PhysicalPlan, members: tuple[int, ...]) -> str:
    if not any(member in plan.keyed for member in members):
        return _BEFORE
    return _BOTH if any(member in plan.direct for member in members) else _AFTER


def _ways(plan: PhysicalPlan, job: Job, member: int) -> Iterator[str]:
    vertex = job.vertices[member]
    for port in (*vertex.outputs, *(side for side in SIDE_STREAMS if vertex.is_side_port(side))):
        for hop in plan.hops.get((member, port), ()):
            notes = [
                *([_target_instances(plan, hop)] if hop.channel is Channel.EXCHANGE else []),
                *(["as columns"] if hop.channel is Channel.NATIVE else []),
                *(["closes a loop"] if hop.closing else []),
            ]
            out = "" if port == DEFAULT_OUTPUT else f"{port}: "
            into = "" if hop.port == DEFAULT_INPUT else f"[{hop.port}]"
            note = f" ({', '.join(notes)})" if notes else ""
            yield f"{out}{job.vertices[hop.target].name}{into}{note}"


def _target_instances(plan: PhysicalPlan, hop: Hop) -> str:
    """Return a note on which instances receive the records of an edge through the shuffle."""
    if hop.distribution is Distribution.BY_KEY:
        return "by key"
    number = plan.instances[hop.target]
    instances = f"{number} instances" if number else "as many instances as cores"
    return f"to each of {instances}" if hop.distribution is Distribution.TO_ALL else f"in turn to {instances}"


def _shuffle(plan: PhysicalPlan, job: Job) -> Iterator[str]:
    if not plan.needs_exchange:
        yield "No shuffle: every task runs where its records are"
        return
    count = _count(len(plan.exchanges), "exchange", "exchanges")
    arrows = ", ".join(_arrow(job, exchange) for exchange in plan.exchanges)
    how = "" if plan.instances else "by key, "
    yield f"Spark shuffles here: {arrows} ({how}{count} in one shuffle)"
    for exchange in plan.exchanges:
        if exchange.feedback:
            late = " when the sender ran after the shuffle" if exchange.source in plan.direct else ""
            yield f"  {_arrow(job, exchange)} goes through the next micro-batch{late}"


def _loops(plan: PhysicalPlan, job: Job) -> Iterator[str]:
    if not plan.loops:
        yield "No loops"
        return
    yield "Loops"
    for loop in plan.loops:
        entry, limit = job.vertices[loop.entry].name, _count(loop.limit, "time", "times")
        yield f"  into {entry}, at most {limit} a record: {', '.join(loop.members)}"
        yield f"    {_loop_path(loop, plan, job)}"


def _loop_path(loop: Loop, plan: PhysicalPlan, job: Job) -> str:
    members = set(loop.members)
    crossed = [
        _arrow(job, exchange)
        for exchange in plan.exchanges
        if job.vertices[exchange.source].name in members and job.vertices[exchange.target].name in members
    ]
    if not crossed:
        return "goes round in memory"
    return f"goes round through the next micro-batch, over {', '.join(crossed)}"


def _sinks(job: Job) -> Iterator[str]:
    yield "Sinks"
    width = max(len(name) for name in job.sinks)
    for vertex in job.vertices:
        if vertex.kind == "sink":
            kind = operator_name(vertex.operator).rpartition(".")[2]
            senders = [job.vertices[edge.source].name for edge in job.edges if edge.target == vertex.index]
            yield f"  {vertex.name:<{width}}  {kind}, from {', '.join(dict.fromkeys(senders))}"
            if job.k:
                yield f"  {'':<{width}}  {delivery_text(job.delivery()[vertex.name])}"
            if any(edge.by is SAME_KEY for edge in job.edges if edge.target == vertex.index):
                yield f"  {'':<{width}}  SAME_KEY into a sink needs no shuffle"


def _arrow(job: Job, exchange: Exchange) -> str:
    if exchange.target_port == WINDOW_PORT:
        return f"{job.vertices[exchange.source].name} -> its windows"
    return f"{job.vertices[exchange.source].name} -> {job.vertices[exchange.target].name}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
