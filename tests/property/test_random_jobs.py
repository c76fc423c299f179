"""Random jobs in the engine alone do what a plain evaluation of the graph says they do."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from engine_support import LocalRun
from reference import SLOTS, RandomJob, compare, evaluate, random_job

import penstock as ps
from penstock.engine.execution.record_flow import Program
from penstock.engine.execution.vertex_step import Step

WITHOUT_SPARK = 300

_step = Program.step


def _usable(count: int, first: int) -> list[RandomJob]:
    found: list[RandomJob] = []
    seed = first
    while len(found) < count:
        candidate = random_job(seed)
        seed += 1
        try:
            candidate.job.validate()
        except ps.GraphError:
            continue
        if evaluate(candidate, most=2_000) is not None:
            found.append(candidate)
    return found


def _in_its_instance(program: Program, vertex: int, instance: int) -> Step:
    """Do what ``Program.step`` does, where a vertex has as many instances as it should."""
    number = program.blueprint.instances.get(vertex)
    assert number is None or 0 <= instance < number, (program.names[vertex], instance, number)
    return _step(program, vertex, instance)


@pytest.mark.parametrize("partitions", [1, 3])
def test_random_jobs_without_spark(partitions: int) -> None:
    for candidate in _usable(30, first=0):
        result = ps.testing.run(candidate.job, candidate.feed, partitions=partitions, engine="local")
        compare(candidate, dict(result), result.discarded)


def test_many_more_in_the_engine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "step", _in_its_instance)
    for number, candidate in enumerate(_usable(WITHOUT_SPARK, first=10_000)):
        sources = list(candidate.feed.items())
        buckets = candidate.job.buckets
        assert buckets is not None
        run = LocalRun(candidate.job, tmp_path / str(number), buckets=buckets, slots=min(SLOTS, buckets))
        tables = random.Random(number)
        plan = run.blueprint.plan
        assert not set(plan.instances) & set(plan.direct), "instances are behind the shuffle"
        for name, items in sources:
            run.assign([tables.randrange(run.blueprint.slots) for _ in range(buckets)])
            run.step(list(items), source=name)
        while run.feedback:
            run.assign([tables.randrange(run.blueprint.slots) for _ in range(buckets)])
            run.step()
        out = {name: sink.records for name, sink in run.sinks.items()}
        compare(candidate, out, [ps.Discarded.from_record(r) for r in run.discarded.records])
