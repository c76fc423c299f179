"""Windows on Spark do what the reference says, with many cases side by side in one job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from window_cases import SOURCE, SOURCE_CUTS, Case, add_case, random_cases, seen, windowed_vertex
from window_reference import evaluate

import penstock as ps
from support.running import Engine


def _cases(wanted: Callable[[Case], bool], least: int) -> dict[str, Case]:
    cases = {f"case{seed}": case for seed, case in enumerate(random_cases(300)) if wanted(case)}
    assert len(cases) >= least
    return cases


class Dealer(ps.Task):
    """Gives each case its own records, from a source that has those of all cases."""

    def __init__(self, names: list[str]) -> None:
        self.outputs = tuple(names)

    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        for packet in inputs.get():
            if packet.value is not None:
                name, key, value, ts = packet.value
                outputs.emit(key, value, port=name, ts=ts)


def _side_by_side(cases: dict[str, Case], lanes: int) -> tuple[list[ps.Record], int]:
    """Return one feed that gives each case its records in its own batches and lanes, and the batch of all."""
    rounds: dict[int, list[list[Any]]] = defaultdict(lambda: [[] for _ in range(lanes)])
    for name, case in cases.items():
        for position, record in enumerate(case.feed):
            number = 0 if case.batch is None else position // case.batch
            rounds[number][position % lanes].append((name, *record))
    # Each round is filled up to the same length, as batches have one size.
    longest = max(len(lane) for by_lane in rounds.values() for lane in by_lane)
    feed = [
        ps.Record(None, by_lane[lane][place] if place < len(by_lane[lane]) else None)
        for _, by_lane in sorted(rounds.items())
        for place in range(longest)
        for lane in range(lanes)
    ]
    return feed, longest * lanes


def _compare(cases: dict[str, Case], result: ps.testing.Result) -> None:
    late: dict[str, Counter[Any]] = defaultdict(Counter)
    for entry in result.late:
        late[entry.vertex][entry.record] += 1
    for name, case in cases.items():
        expected_results, expected_late = evaluate(case)
        assert seen(case, result[f"sink-{name}"]) == expected_results, (name, case)
        assert late.pop(windowed_vertex(name, case), Counter()) == expected_late, (name, case)
    assert not late


@pytest.mark.parametrize(
    ("lanes", "most"), [(3, 20), *(pytest.param(n, None, marks=pytest.mark.full) for n in (1, 2, 3))]
)
def test_windows_of_tasks(lanes: int, most: int | None, spark: Engine) -> None:
    cases = _cases(lambda case: case.place != SOURCE and case.lanes == lanes, least=60)
    cases = dict(islice(cases.items(), most))
    job = ps.Job("windows")
    dealer = job.task("dealer", Dealer(list(cases)))
    job.source("all", ps.MemorySource()) >> dealer
    for name, case in cases.items():
        add_case(job, name, case, comes_from=dealer[name])
    feed, batch = _side_by_side(cases, lanes)
    _compare(cases, spark.feed(job, {"all": feed}, partitions=lanes, batch=batch))


@pytest.mark.full
@pytest.mark.parametrize("cut", SOURCE_CUTS, ids=lambda cut: f"{cut[0]} lanes, batches of {cut[1]}")
def test_windows_of_sources(cut: tuple[int, int | None], spark: Engine) -> None:
    cases = _cases(lambda case: case.place == SOURCE and (case.lanes, case.batch) == cut, least=3)
    job = ps.Job("windows")
    for name, case in cases.items():
        add_case(job, name, case)
    feeds = {f"source-{name}": case.feed for name, case in cases.items()}
    _compare(cases, spark.feed(job, feeds, partitions=cut[0], batch=cut[1]))
