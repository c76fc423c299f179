"""Windows in the engine alone do what the reference says, however the input is cut."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from engine_support import LocalRun
from hypothesis import given, settings
from window_cases import SEEDS, Case, add_case, random_case, seen, windowed_vertex
from window_reference import evaluate

import penstock as ps

CASES = 2 * settings().max_examples


def run_case_locally(case: Case, folder: Path, buckets: int) -> tuple[Counter[Any], Counter[ps.Record]]:
    """Return what reaches the sink, and the late records, of a case run batch by batch in this process."""
    job = ps.Job("windows")
    add_case(job, "one", case)
    run = LocalRun(job, folder, buckets=buckets)
    known = [str(lane) for lane in range(min(case.lanes, len(case.feed)))]
    step = case.batch or max(1, len(case.feed))
    for start in range(0, len(case.feed), step):
        lanes: dict[tuple[str, str], list[ps.Record]] = {}
        for position in range(start, min(start + step, len(case.feed))):
            lanes.setdefault(("source-one", str(position % case.lanes)), []).append(case.feed[position])
        run.run(lanes, expected={"source-one": known})
    run.end()
    late = [ps.Late.from_record(record) for record in run.sides["late"].records]
    assert {entry.vertex for entry in late} <= {windowed_vertex("one", case)}
    return seen(case, run.sinks["sink-one"].records), Counter(entry.record for entry in late)


@settings(max_examples=CASES)
@given(SEEDS)
def test_random_windows(seed: int) -> None:
    case = random_case(seed)
    with tempfile.TemporaryDirectory() as folder:
        results, late = run_case_locally(case, Path(folder), buckets=1 + seed % 3)
    expected_results, expected_late = evaluate(case)
    assert results == expected_results
    assert late == expected_late


def test_records_of_one_time_stay_in_order_when_some_of_their_windows_close(tmp_path: Path) -> None:
    times = [10.0, 11.5, 10.0, 12.5, 10.0]
    feed = tuple(ps.Record("a", number, ts) for number, ts in enumerate(times))
    case = Case("stateful", ps.TimeWindow(4, slide=1), 1, None, feed)
    results, late = run_case_locally(case, tmp_path, buckets=1)
    assert (results, late) == evaluate(case)
    assert results["a", (9.0, 13.0, (0, 2, 4, 1, 3)), 12.999] == 1
