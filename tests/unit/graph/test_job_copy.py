"""Copies of jobs in which single things are different."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.graph.job_copy import changed_copy, differences, job_copy


class Total(ps.StatefulTask):
    """The sum of each key."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        total = (state or 0) + sum(values)
        return total, [(key, total)]


def _job() -> ps.Job:
    job = ps.Job("job", parallelism=2, spark={"spark.driver.memory": "1g"})
    source = job.source("in", ps.MemorySource())
    double = job.task("double", lambda r: r.value * 2, qos={"priority": 3}, config={"factor": 2})
    source >> double >> job.task("total", Total()) >> job.sink("out", ps.MemorySink())
    return job


def test_a_copy_is_the_same_job_and_shares_nothing_that_changes() -> None:
    job = _job()
    twin = job_copy(job)
    assert twin.to_json() == job.to_json()
    assert differences(job, twin) == []
    twin.validate()
    assert all(vertex.job is twin for vertex in twin.vertices)
    twin.vertex("in") >> twin.sink("more", ps.MemorySink())
    twin.spark["spark.driver.memory"] = "2g"
    twin.vertex("double").config["factor"] = 3  # type: ignore[index]
    assert job.to_json() == _job().to_json()
    assert job.vertex("double").config == {"factor": 2}


def test_every_single_change_is_made_and_told() -> None:
    job = _job()
    new = changed_copy(
        job,
        parallelism=4,
        tasks={"double": lambda r: r.value + r.value},
        qos={"priority": 9},
        vertex_qos={"double": ps.QoS(max_latency=2.0)},
        max_iterations=7,
    )
    new.validate()
    told = differences(job, new)
    assert [text.split(":")[0] for text in told] == [
        "qos",
        "max_iterations",
        "parallelism",
        "vertex 'double', qos",
        "other code in 'double'",
    ]
    assert new.qos == ps.QoS(priority=9)
    assert new.vertex("double").config == {"factor": 2}
    assert job.to_json() == _job().to_json()


def test_a_task_of_another_kind_gets_its_records_as_it_needs_them() -> None:
    job = _job()
    new = changed_copy(job, tasks={"double": Total, "total": lambda r: r})
    assert [(edge.target, edge.by) for edge in new.edges] == [
        (1, ps.SAME_KEY),
        (2, ps.ROUND_ROBIN),
        (3, ps.ROUND_ROBIN),
    ]
    new.validate()
    assert "vertex 'total', stateful: False instead of True" in differences(job, new)


def test_vertices_and_edges_that_come_and_go_are_told() -> None:
    job, other = _job(), ps.Job("job", parallelism=2)
    other.source("in", ps.MemorySource()) >> other.sink("elsewhere", ps.MemorySink())
    told = differences(job, other)
    assert "vertex 'total' was removed" in told
    assert "vertex 'elsewhere' was added" in told
    assert "other edges" in told


def test_wrong_names_are_refused() -> None:
    with pytest.raises(ps.SettingError, match=r"no vertex 'dubble'.*'double'"):
        changed_copy(_job(), tasks={"dubble": abs})
    with pytest.raises(ps.SettingError, match="no vertex 'x'"):
        changed_copy(_job(), vertex_qos={"x": ps.QoS()})
    with pytest.raises(ps.SettingError, match=r"'out' is a sink.*'double', 'total'"):
        changed_copy(_job(), tasks={"out": abs})
    with pytest.raises(ps.GraphError, match="bad-task"):
        changed_copy(_job(), tasks={"double": 3}).validate()
