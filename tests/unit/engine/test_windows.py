"""Windows in the engine's two halves, without Spark: what they give, what is late, what waits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from engine_support import LocalRun

import penstock as ps
from penstock.graph.job_compatibility import incompatibilities


class _Seen(ps.StatefulTask):
    """Emits what each window has, and counts the windows of a key in its state."""

    def update(self, key: Any, values: Any, state: Any) -> Any:
        number = (state or 0) + 1
        return number, [(key, (number, values.start, values.end, tuple(values)))]


def _job(task: Any, window: Any, **options: Any) -> ps.Job:
    job = ps.Job("windows", **options)
    source = job.source("in", ps.MemorySource())
    source >> job.task("window", task, window=window) >> job.sink("out", ps.MemorySink())
    return job


def _at(*items: tuple[Any, Any, float]) -> list[ps.Record]:
    return [ps.Record(*item) for item in items]


def test_tumbling_windows_of_a_key(tmp_path: Path) -> None:
    run = LocalRun(_job(_Seen(), ps.TimeWindow(10)), tmp_path)
    run.step(_at(("a", 1, 1.0), ("b", 2, 5.0), ("a", 3, 9.0)))
    assert run.sinks["out"].records == []
    run.step(_at(("a", 4, 10.0)))
    assert [tuple(r) for r in run.sinks["out"].records] == [
        ("a", (1, 0.0, 10.0, (1, 3)), 9.999),
        ("b", (1, 0.0, 10.0, (2,)), 9.999),
    ]
    run.end()
    assert run.sinks["out"].records[-1] == ps.Record("a", (2, 10.0, 20.0, (4,)), 19.999)
    assert run.times.pending == {}


def test_a_record_that_is_out_of_order_waits_within_the_watermark_and_is_late_behind_it(
    tmp_path: Path,
) -> None:
    run = LocalRun(_job(ps.Count(), ps.TimeWindow(10, watermark=5)), tmp_path)
    run.step(_at(("a", 1, 3.0), ("a", 1, 14.0), ("a", 1, 4.0)))
    assert run.out("out") == {}
    run.step(_at(("a", 1, 15.0), ("a", "late", 9.0), ("a", 1, 12.0)))
    assert run.out("out") == {("a", 2): 1}
    [late] = [ps.Late.from_record(record) for record in run.sides["late"].records]
    assert (late.vertex, late.value, late.ts, late.watermark) == ("window", "late", 9.0, 10.0)
    assert run.summaries[-1].side == {"late": {"window": 1}}
    run.end()
    assert run.out("out") == {("a", 2): 1, ("a", 3): 1}


def test_sliding_windows_share_what_they_have_in_common(tmp_path: Path) -> None:
    run = LocalRun(_job(ps.Sum(), ps.TimeWindow(10, slide=5)), tmp_path)
    run.step(_at(("a", 1, 1.0), ("a", 10, 6.0)))
    run.step(_at(("a", 100, 11.0)))
    run.end()
    assert [(r.value, r.ts) for r in run.sinks["out"].records] == [
        (1, 4.999),
        (11, 9.999),
        (110, 14.999),
        (100, 19.999),
    ]


def test_a_window_is_the_same_however_its_input_is_cut(tmp_path: Path) -> None:
    items = _at(*((f"k{n % 3}", n, float((n * 7) % 50)) for n in range(60)))
    found = set()
    for size in (1, 7, 60):
        run = LocalRun(_job(_Values(), ps.TimeWindow(8, slide=3, watermark=12)), tmp_path / str(size))
        for start in range(0, len(items), size):
            run.step(items[start : start + size])
        run.end()
        late = frozenset(r.value["value"] for r in run.sides["late"].records)
        found.add((frozenset(run.out("out").items()), late))
    assert len(found) == 1
    assert found.pop()[1]


class _Values(ps.StatefulTask):
    def update(self, key: Any, values: Any, state: Any) -> Any:
        return None, [(key, (values.start, tuple(values)))]


def test_the_slowest_lane_holds_windows_open(tmp_path: Path) -> None:
    run = LocalRun(_job(ps.Count(), ps.TimeWindow(10)), tmp_path)
    lanes = {"in": ["0", "1"]}
    run.run({("in", "0"): _at(("a", 1, 25.0))}, expected=lanes)
    assert run.out("out") == {}
    run.run({("in", "1"): _at(("a", 1, 3.0), ("a", 1, 12.0))}, expected=lanes)
    assert run.out("out") == {("a", 1): 1}
    assert run.sides["late"].records == []


def test_a_silent_lane_holds_windows_open_for_a_while_only(tmp_path: Path) -> None:
    run = LocalRun(_job(ps.Count(), ps.TimeWindow(10, idle=30)), tmp_path)
    run.run({("in", "0"): _at(("a", 1, 1.0)), ("in", "1"): _at(("b", 1, 1.0))}, now=100.0)
    run.run({("in", "0"): _at(("a", 1, 15.0))}, now=120.0)
    assert run.out("out") == {}
    run.run({("in", "0"): _at(("a", 1, 16.0))}, now=131.0)
    assert run.out("out") == {("a", 1): 1, ("b", 1): 1}
    run.run({("in", "1"): _at(("b", "woken", 2.0))}, now=140.0)
    assert [record.value["value"] for record in run.sides["late"].records] == ["woken"]


def test_windows_of_processing_time(tmp_path: Path) -> None:
    run = LocalRun(_job(ps.Count(), ps.TimeWindow(10, time="processing")), tmp_path)
    run.run({("in", "0"): ["x", "y"]}, now=101.0)
    run.run({("in", "0"): ["z"]}, now=109.0)
    assert run.out("out") == {}
    assert run.times.earliest == {"window": 110.0}
    run.run({}, now=110.0)
    assert run.out("out") == {(None, 3): 1}


def test_count_windows_of_a_key(tmp_path: Path) -> None:
    run = LocalRun(_job(_Seen(), ps.CountWindow(3, slide=2)), tmp_path)
    run.step([("a", 0), ("b", 0), ("a", 1)])
    run.step([("a", 2), ("a", 3), ("a", 4)])
    run.end()
    assert [tuple(r)[:2] for r in run.sinks["out"].records] == [
        ("a", (1, 0, 3, (0, 1, 2))),
        ("a", (2, 2, 5, (2, 3, 4))),
    ]


def test_a_built_in_aggregation_over_count_windows(tmp_path: Path) -> None:
    run = LocalRun(_job(ps.Sum(), ps.CountWindow(2)), tmp_path)
    run.step([("a", 1), ("a", 2), ("a", 3), ("b", 9)])
    assert run.out("out") == {("a", 3): 1}


@pytest.mark.parametrize("buckets", [1, 3])
def test_time_windows_of_a_source(tmp_path: Path, buckets: int) -> None:
    job = ps.Job("source")
    source = job.source("in", ps.MemorySource(), window=ps.TimeWindow(10))
    mean = job.task("mean", lambda window: (window.start, sum(window.values) / len(window.records)))
    source >> mean >> job.sink("out", ps.MemorySink())
    run = LocalRun(job, tmp_path, buckets)
    run.step(_at(("a", 1, 1.0), ("b", 3, 2.0), ("a", 10, 12.0), ("c", "late", 3.0)))
    run.end()
    assert run.out("out") == {(0.0, 2.0): 1, (10.0, 10.0): 1}
    assert [r.value["value"] for r in run.sides["late"].records] == ["late"]


def test_count_windows_of_a_source_follow_each_lane(tmp_path: Path) -> None:
    job = ps.Job("source")
    source = job.source("in", ps.MemorySource(), window=ps.CountWindow(2))
    source >> job.task("all", lambda w: (w.start, tuple(w.values))) >> job.sink("out", ps.MemorySink())
    run = LocalRun(job, tmp_path)
    run.run({("in", "0"): [1, 2, 3], ("in", "1"): [10]})
    run.run({("in", "0"): [4], ("in", "1"): [20, 30]})
    assert run.out("out") == {(0, (1, 2)): 1, (2, (3, 4)): 1, (0, (10, 20)): 1}


def test_windows_behind_windows(tmp_path: Path) -> None:
    job = ps.Job("chain")
    source = job.source("in", ps.MemorySource())
    small = job.task("small", ps.Count(), window=ps.TimeWindow(10))
    large = job.task("large", ps.Sum(), window=ps.TimeWindow(30))
    source >> small >> large >> job.sink("out", ps.MemorySink())
    run = LocalRun(job, tmp_path)
    for start in range(0, 60, 4):
        run.step(_at(("a", 1, float(start)), ("a", 1, start + 2.0)))
    run.end()
    assert [(r.value, r.ts) for r in run.sinks["out"].records] == [(15, 29.999), (15, 59.999)]
    assert run.sides["late"].records == []


def test_a_record_without_a_time_has_no_window(tmp_path: Path) -> None:
    with pytest.raises(ps.TaskError, match="has no time"):
        LocalRun(_job(ps.Count(), ps.TimeWindow(10)), tmp_path / "fail").step(["x"])
    run = LocalRun(_job(ps.Count(), ps.TimeWindow(10), on_error="discard"), tmp_path / "discard")
    run.step(["x", *_at(("a", 1, 1.0), ("a", 1, float("nan")), ("a", 1, "noon"))])  # type: ignore[arg-type]
    run.end()
    assert run.out("out") == {("a", 1): 1}
    assert len(run.sides["errors"].records) == 3


def test_late_records_can_be_worked_on(tmp_path: Path) -> None:
    job = _job(ps.Count(), ps.TimeWindow(10))
    (
        job.vertex("window")["late"]
        >> job.task("again", lambda r: (r.key, r.value))
        >> job.sink("late", ps.MemorySink())
    )
    run = LocalRun(job, tmp_path)
    run.step(_at(("a", 1, 1.0), ("a", 1, 20.0), ("a", "x", 5.0)))
    assert run.out("late") == {("a", "x"): 1}
    assert len(run.sides["late"].records) == 1


def test_what_only_passes_through_a_batch_leaves_nothing_in_the_state(tmp_path: Path) -> None:
    run = LocalRun(_job(ps.Count(), ps.TimeWindow(1)), tmp_path)
    for n in range(5):
        run.step(_at(*((f"k{k}", 1, n * 100.0 + k) for k in range(50))))
    run.end()
    assert sum(run.out("out").values()) == 250
    sizes = [path.stat().st_size for path in tmp_path.rglob("*.sections")]
    assert max(sizes) < 2000


@pytest.mark.parametrize("loop", [False, True])
def test_ways_that_meet_again_before_a_window_do_not_make_each_other_late(tmp_path: Path, loop: bool) -> None:
    found = set()
    for size in (1, 3, 10):
        job = ps.Job("diamond", max_iterations=2)
        source = job.source("in", ps.MemorySource())
        one, two = job.task("one", lambda r: r), job.task("two", lambda r: r)
        window = job.task("window", ps.Count(), window=ps.TimeWindow(2))
        source >> [one, two]
        [one, two] >> window >> job.sink("out", ps.MemorySink())
        if loop:
            two >> two
        run = LocalRun(job, tmp_path / f"{size}")
        items = _at(*(("k", n, float(n)) for n in range(10)))
        for start in range(0, 10, size):
            run.step(items[start : start + size])
        run.end()
        assert run.sides["late"].records == []
        found.add(frozenset(run.out("out").items()))
    assert found == {frozenset({(("k", 8 if loop else 4), 5)})}


@pytest.mark.parametrize(
    "ts",
    [10**400, -(10**5000), float("nan"), float("inf"), "noon"],
    ids=["huge", "hugest", "nan", "inf", "text"],
)
def test_a_time_that_is_none_ends_in_the_errors_and_nothing_else(tmp_path: Path, ts: Any) -> None:
    run = LocalRun(_job(ps.Count(), ps.TimeWindow(10), on_error="discard"), tmp_path)
    run.step([ps.Record("a", 1, 1.0), ps.Record("a", 1, ts), ps.Record("a", 1, 2.0)])
    run.end()
    assert run.out("out") == {("a", 2): 1}
    [failed] = [record.value for record in run.sides["errors"].records]
    assert "time must be a number of seconds" in failed["message"]


def test_nor_does_it_where_windows_lie_behind_a_task_with_state(tmp_path: Path) -> None:
    job = ps.Job("behind", on_error="discard")
    source, first = job.source("in", ps.MemorySource()), job.task("first", _Latest())
    (
        source
        >> first
        >> job.task("window", ps.Count(), window=ps.TimeWindow(10))
        >> job.sink("out", ps.MemorySink())
    )
    run = LocalRun(job, tmp_path)
    run.step([ps.Record("a", 1, 10**400), ps.Record("b", 1, 1.0)])
    run.step([ps.Record("b", 1, 100.0)])
    run.end()
    assert run.out("out") == {("b", 1): 2}


class _Latest(ps.StatefulTask):
    def update(self, key: Any, values: Any, state: Any) -> Any:
        return len(values), [(key, values[-1])]


class _Files(ps.FileSource):
    """Files, read by a run that puts records into the lanes of other sources."""

    waiting: Any = None
    expected: Any = ()


@pytest.mark.parametrize("seconds", [1.0, 40.0])
def test_a_lane_whose_next_file_waits_for_its_turn_is_not_idle(tmp_path: Path, seconds: float) -> None:
    """One file a batch, and batches that take long: a lane is silent while others have their turn."""
    (tmp_path / "in").mkdir()
    for number, ts in enumerate([0, 1, 100, 50, 200, 60]):
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"ts": ts}) + "\n")
    source = _Files(tmp_path / "in", "json", key=lambda _: "a", ts="ts", partitions=2, max_files_per_batch=1)
    run = LocalRun(_job(ps.Count(), ps.TimeWindow(10)), tmp_path / "job", sources={"in": source})
    for batch in range(6):
        run.run({}, now=1000.0 + batch * seconds)
    assert not run.sides["late"].records
    run.end()
    assert sum(record.value for record in run.sinks["out"].records) == 6


class _Largest(ps.CombiningTask):
    """A combining task with an update of its own."""

    def lift(self, value: Any) -> Any:
        return value

    def merge(self, left: Any, right: Any) -> Any:
        return max(left, right)

    def update(self, key: Any, values: list[Any], state: Any) -> Any:
        return None, [(f"{key}!", max(values)), (f"{key}?", min(values))]


def test_results_can_carry_the_bounds_of_their_window() -> None:
    feed = {"in": _at(("a", 3, 1.0), ("a", 5, 12.0))}
    result = ps.testing.run(_job(ps.Sum(), ps.TimeWindow(10, 5, with_bounds=True)), feed, engine="local")
    assert [tuple(record) for record in result["out"]] == [
        ("a", {"value": 3, "start": -5.0, "end": 5.0}, 4.999),
        ("a", {"value": 3, "start": 0.0, "end": 10.0}, 9.999),
        ("a", {"value": 5, "start": 5.0, "end": 15.0}, 14.999),
        ("a", {"value": 5, "start": 10.0, "end": 20.0}, 19.999),
    ]
    own = ps.testing.run(_job(_Largest(), ps.TimeWindow(10, with_bounds=True)), feed, engine="local")
    assert [(record.key, record.value) for record in own["out"]][:2] == [
        ("a!", {"value": 3, "start": 0.0, "end": 10.0}),
        ("a?", {"value": 3, "start": 0.0, "end": 10.0}),
    ]
    plain = ps.testing.run(_job(ps.Sum(), ps.TimeWindow(10)), feed, engine="local")
    assert [record.value for record in plain["out"]] == [3, 5]


def test_bounds_are_a_matter_of_output_and_for_aggregations_only() -> None:
    plain, bounded = (_job(ps.Sum(), ps.TimeWindow(10, with_bounds=with_it)) for with_it in (False, True))
    assert "with_bounds" not in plain.to_json()
    assert "with_bounds" in bounded.to_json()
    assert incompatibilities(plain.to_dict(), bounded.to_dict(), has_state=True, in_flight=False) == []
    with pytest.raises(ps.GraphError, match="with_bounds is for aggregations"):
        _job(_Seen(), ps.TimeWindow(10, with_bounds=True)).validate()
    with pytest.raises(ps.GraphError, match="with_bounds must be True or False, not 1"):
        _job(ps.Sum(), ps.TimeWindow(10, with_bounds=1)).validate()  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [1, 2, 3, None])
@pytest.mark.parametrize("task", [ps.Sum(), ps.Reduce(lambda left, right: left + right)])
def test_a_value_that_cannot_be_merged_leaves_sliding_windows_alone_however_batches_are_cut(
    task: Any, batch: int | None
) -> None:
    """It meets the others when a window is given, when what is left of it moves on, or in the next batch."""
    feed = {"in": _at(("k", 1, 6.0), ("o", 1, 11.0), ("k", "x", 7.0), ("k", 2, 12.0))}
    job = _job(task, ps.TimeWindow(10, slide=5), on_error="discard")
    result = ps.testing.run(job, feed, batch=batch, partitions=1, engine="local")
    given = [(record.value, record.ts) for record in result["out"] if record.key == "k"]
    assert given == [(1, 9.999), (3, 14.999), (2, 19.999)]
    assert [(failed.key, failed.value) for failed in result.errors] == [("k", "x")]


def test_a_value_that_cannot_be_merged_when_the_last_window_is_given_is_the_only_one_left_out(
    tmp_path: Path,
) -> None:
    run = LocalRun(_job(ps.Sum(), ps.TimeWindow(30, slide=10), on_error="discard"), tmp_path)
    run.step(_at(("k", 1, 15.0), ("o", 1, 21.0), ("k", "x", 22.0)))
    run.end()
    assert [record.value for record in run.sinks["out"].records if record.key == "k"] == [1, 1, 1]
    assert [record.value["value"] for record in run.sides["errors"].records] == ["x"]


@pytest.mark.parametrize("batch", [1, None])
def test_a_record_whose_time_cannot_be_compared_is_not_in_a_window_of_a_number_of_records(
    batch: int | None,
) -> None:
    feed = {"in": _at(("a", 1, 1.0), ("a", 2, "noon"), ("a", 3, 3.0))}  # type: ignore[arg-type]
    for task, expected in ((_Seen(), (1, 0, 2, (1, 3))), (ps.Sum(), 4)):
        job = _job(task, ps.CountWindow(2), on_error="discard")
        result = ps.testing.run(job, feed, batch=batch, partitions=1, engine="local")
        assert [(record.value, record.ts) for record in result["out"]] == [(expected, 3.0)]
        assert [failed.value for failed in result.errors] == [2]
    with pytest.raises(ps.TaskError, match="the record's time must be a number of seconds, not 'noon'"):
        ps.testing.run(_job(_Seen(), ps.CountWindow(2)), feed, engine="local")


def test_a_result_that_raises_is_asked_again_for_the_state_as_it_was(tmp_path: Path) -> None:
    class Takes(ps.CombiningTask):
        def lift(self, value: Any) -> list[Any]:
            return [value]

        def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
            return left + right

        def result(self, state: list[Any]) -> list[Any]:
            taken = [state.pop() for _ in range(len(state))]
            calls.append(taken)
            if len(calls) == 1:
                raise OSError("try again")
            return taken

    calls: list[list[Any]] = []
    run = LocalRun(_job(Takes(), ps.TimeWindow(10), on_error=ps.Retry(1, delay=0)), tmp_path)
    run.step(_at(("a", 1, 1.0), ("a", 2, 2.0)))
    run.end()
    assert calls == [[2, 1], [2, 1]]
