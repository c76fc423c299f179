"""From which window on a replica that began without state has all that the others have."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine.blueprint import Blueprint, make_blueprint
from penstock.engine.windows.watermarks import TimeProgress
from penstock.graph.vertex import SIDE_STREAMS
from penstock.replicas.agreement.replica_catch_up import complete_from, is_complete


def _drawn(job: ps.Job, tmp_path: Path) -> Blueprint:
    return make_blueprint(
        job, folder=tmp_path, buckets=1, sides={stream: ps.MemorySink() for stream in SIDE_STREAMS}
    )


def _windowed(window: ps.TimeWindow, second: ps.TimeWindow | None = None) -> ps.Job:
    job = ps.Job("windows", replicas=ps.Replicas(recovery="next-window"))
    counts = job.task("count", ps.Count(), window=window)
    job.source("in", ps.MemorySource()) >> counts
    if second is not None:
        most = job.task("most", ps.Max(), window=second)
        counts >> job.task("all", lambda r: ("all", r.value)) >> most
        counts = most
    counts >> job.sink("out", ps.MemorySink())
    return job


def _at(*highs: float, marks: dict[str, float] | None = None) -> TimeProgress:
    lanes = {f"in:{number}": (high, 0.0) for number, high in enumerate(highs)}
    return TimeProgress(now=99.0, highs={"count": lanes}, marks=marks or {"count": -inf})


@pytest.mark.parametrize(
    ("window", "highs", "mark"),
    [
        (ps.TimeWindow(10), [14.0], 20.0),
        (ps.TimeWindow(10), [20.0], 30.0),
        (ps.TimeWindow(10), [14.0, 31.0], 40.0),
        (ps.TimeWindow(10, watermark=5), [14.0], 20.0),
        (ps.TimeWindow(10, slide=5), [14.0], 20.0),
        (ps.TimeWindow(10, slide=5), [15.0], 25.0),
        (ps.TimeWindow(10, slide=3), [14.0], 22.0),
        (ps.TimeWindow(10), [-inf, -inf], -inf),
        (ps.TimeWindow(10), [-inf, 3.0], 10.0),
        (ps.TimeWindow(10), [], -inf),
        (ps.TimeWindow(10, time="processing"), [], 100.0),
    ],
)
def test_windows_that_had_begun_are_not_whole(
    window: ps.TimeWindow, highs: list[float], mark: float, tmp_path: Path
) -> None:
    blueprint = _drawn(_windowed(window), tmp_path)

    assert complete_from(blueprint, _at(*highs)) == {"count": mark}


def test_a_replica_is_whole_when_the_last_of_them_is_closed(tmp_path: Path) -> None:
    blueprint = _drawn(_windowed(ps.TimeWindow(10, slide=5)), tmp_path)
    joined = _at(14.0)

    assert not is_complete(blueprint, joined, joined)
    assert not is_complete(blueprint, joined, _at(21.0, marks={"count": 19.9}))
    assert is_complete(blueprint, joined, _at(21.0, marks={"count": 20.0}))
    assert is_complete(blueprint, joined, _at(21.0, marks={"count": inf}))


def test_before_any_record_it_is_whole_at_once(tmp_path: Path) -> None:
    blueprint = _drawn(_windowed(ps.TimeWindow(10)), tmp_path)

    assert is_complete(blueprint, TimeProgress(), TimeProgress())


def test_windows_of_windows_wait_for_wrong_results_too(tmp_path: Path) -> None:
    blueprint = _drawn(_windowed(ps.TimeWindow(10), ps.TimeWindow(15)), tmp_path)
    joined = _at(14.0)

    # The window from 10 to 20 is not whole, and its result is in the one from 15 to 30.
    assert complete_from(blueprint, joined) == {"count": 20.0, "most": 30.0}
    assert not is_complete(blueprint, joined, _at(40.0, marks={"count": 40.0, "most": 29.0}))
    assert is_complete(blueprint, joined, _at(40.0, marks={"count": 40.0, "most": 30.0}))


def test_a_job_without_state_is_whole_at_once(tmp_path: Path) -> None:
    job = ps.Job("stateless", replicas=ps.Replicas(recovery="next-window"))
    job.source("in", ps.MemorySource()) >> job.task("f", str) >> job.sink("out", ps.MemorySink())

    job.validate()
    assert is_complete(_drawn(job, tmp_path), _at(14.0), _at(14.0))


class Keeps(ps.StatefulTask):
    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        return values, []


class Joins(ps.Task):
    inputs = ("left", "right")
    sync = True

    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None: ...


_MINUTE = ps.TimeWindow(60)


def _faulty(which: str) -> ps.Job:
    job = ps.Job("faulty", replicas=ps.Replicas(recovery="next-window"), max_iterations=2)
    source, out = job.source("in", ps.MemorySource()), job.sink("out", ps.MemorySink())
    if which == "loop":
        task = job.task("vertex", lambda r: r)
        source >> task >> out
        task >> task
    elif which == "sync":
        task = job.task("vertex", Joins())
        source >> task["left"]
        source >> task["right"]
        task >> out
    elif which == "behind":
        task = job.task("vertex", lambda r: r)
        count = job.task("count", ps.Count(), window=_MINUTE)
        source >> count
        job.connect(count, task, by=ps.SAME_KEY)
        task >> out
    elif which == "processing":
        task = job.task("vertex", ps.Count(), window=ps.TimeWindow(60, time="processing"))
        source >> job.task("count", ps.Count(), window=_MINUTE) >> task >> out
    elif which == "query":
        task = job.task("vertex", ps.Sql("SELECT value FROM input"))
        count = job.task("count", ps.Count(), window=_MINUTE)
        typed = job.task("typed", lambda r: {"value": r.value}, schema="value bigint")
        source >> count >> typed >> task >> out
    else:
        kinds: dict[str, tuple[Any, Any]] = {
            "state": (Keeps(), None),
            "count": (ps.Count(), None),
            "windowed state": (Keeps(), _MINUTE),
            "count window": (ps.Count(), ps.CountWindow(5)),
        }
        operator, window = kinds[which]
        source >> job.task("vertex", operator, window=window) >> out
    return job


@pytest.mark.parametrize(
    "which",
    ["state", "count", "windowed state", "count window", "sync", "loop", "behind", "processing", "query"],
)
def test_what_no_window_of_time_ends_is_refused(which: str, tmp_path: Path) -> None:
    job = _faulty(which)

    with pytest.raises(ps.GraphError) as raised:
        job.validate()
    [problem] = raised.value.problems
    assert (problem.code, problem.vertex) == ("bad-recovery", "vertex")
    job.replicas = ps.Replicas()
    job.validate()
    # Whoever asks for it all the same gets a replica that never takes part.
    assert not is_complete(
        _drawn(job, tmp_path), TimeProgress(), TimeProgress(marks={"vertex": inf, "count": inf})
    )


def test_a_source_with_a_window_is_allowed() -> None:
    job = ps.Job("gathered", replicas=ps.Replicas(recovery="next-window"))
    source = job.source("in", ps.MemorySource(), window=_MINUTE)
    source >> job.task("f", lambda window: len(window.values)) >> job.sink("out", ps.MemorySink())

    job.validate()
