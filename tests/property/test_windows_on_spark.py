"""Windows on Spark do what the reference says. Cases that are cut alike run side by side in one job."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from window_cases import CUTS, add_case, random_case, seen, windowed_vertex
from window_reference import evaluate

import penstock as ps

CASES = 300


def _seeds(cut: tuple[int, int | None]) -> list[int]:
    return [seed for seed in range(CASES) if CUTS[seed % len(CUTS)] == cut]


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: f"{cut[0]}-lanes-batch-{cut[1]}")
def test_random_windows_on_spark(cut: tuple[int, int | None]) -> None:
    lanes, batch = cut
    cases = {str(seed): random_case(seed) for seed in _seeds(cut)}
    job = ps.Job("windows")
    for name, case in cases.items():
        assert (case.lanes, case.batch) == cut
        add_case(job, name, case)
    feeds = {f"source-{name}": case.feed for name, case in cases.items()}
    result = ps.testing.run(job, feeds, partitions=lanes, batch=batch)
    late: dict[str, Counter[Any]] = defaultdict(Counter)
    for entry in result.late:
        late[entry.vertex][entry.record] += 1
    for name, case in cases.items():
        expected_results, expected_late = evaluate(case)
        assert seen(case, result[f"sink-{name}"]) == expected_results, (name, case)
        assert late.pop(windowed_vertex(name, case), Counter()) == expected_late, (name, case)
    assert not late
