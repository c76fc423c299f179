"""Built-in aggregations in the engine: partial results, state from batch to batch, and what is emitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_support import LocalRun

import penstock as ps

BATCHES: list[list[Any]] = [[("a", 1), ("b", 5), ("a", 4)], [("a", 4)], [("b", 7), ("a", 0)]]


@pytest.mark.parametrize(
    ("task", "a", "b"),
    [
        (ps.Count(), [2, 3, 4], [1, 2]),
        (ps.Sum(), [5, 9, 9], [5, 12]),
        (ps.Min(), [1, 1, 0], [5, 5]),
        (ps.Max(), [4, 4, 4], [5, 7]),
        (ps.Mean(), [2.5, 3.0, 2.25], [5.0, 6.0]),
        (ps.Distinct(), [2, 2, 3], [1, 2]),
        (ps.Distinct(values=True), [[1, 4], [1, 4], [0, 1, 4]], [[5], [5, 7]]),
        (ps.TopN(2), [[4, 1], [4, 4], [4, 4]], [[5], [7, 5]]),
        (ps.Quantiles(0.5), [[2.5], [4], [2.5]], [[5], [6.0]]),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, ps.CombiningTask) else "",
)
def test_each_key_emits_its_result_once_a_batch(
    tmp_path: Path, task: Any, a: list[Any], b: list[Any]
) -> None:
    job = ps.Job("job")
    job.source("in", ps.MemorySource()) >> job.task("agg", task) >> job.sink("out", ps.MemorySink())
    run = LocalRun(job, tmp_path)
    for items in BATCHES:
        run.step(items)
    emitted = run.sinks["out"].records
    assert [record.value for record in emitted if record.key == "a"] == a
    assert [record.value for record in emitted if record.key == "b"] == b


def test_a_record_without_the_field_is_named(tmp_path: Path) -> None:
    job = ps.Job("job")
    (
        job.source("in", ps.MemorySource())
        >> job.task("top", ps.Mean("price"))
        >> job.sink("out", ps.MemorySink())
    )
    with pytest.raises(ps.TaskError, match="no field 'price'") as failure:
        LocalRun(job, tmp_path).step([("a", {"price": 1}), ("a", {"prize": 1})])
    assert failure.value.vertex == "top"
