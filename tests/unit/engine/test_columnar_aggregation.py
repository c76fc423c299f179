"""Aggregation by columns gives what aggregation record by record gives."""

from __future__ import annotations

from collections import Counter
from math import inf, isclose, isfinite, nan
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.columns import Columns
from penstock.engine.execution.columnar_aggregation import Windowed, partials, windowed_partials
from penstock.engine.windows.window_assigner import WindowAssigner
from penstock.graph.windows import TimeWindow

TASKS: list[ps.CombiningTask] = [
    ps.Count(),
    *(kind(of) for kind in (ps.Sum, ps.Min, ps.Max, ps.Mean) for of in ("whole", "small", "real")),
    ps.Min("day"),
    ps.Max("day"),
]

FIELDS = pa.schema(
    [("whole", pa.int64()), ("small", pa.int8()), ("real", pa.float64()), ("day", pa.date32())]
)


def _add(task: ps.CombiningTask, into: dict[Any, Any], slot: Any, value: Any) -> None:
    lifted = task.lift(value)
    into[slot] = task.merge(into[slot], lifted) if slot in into else lifted


def _one_by_one(task: ps.CombiningTask, columns: Columns) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for record in columns.records():
        _add(task, found, record.key, record.value)
    return found


def _windowed_one_by_one(
    task: ps.CombiningTask, window: TimeWindow, columns: Columns, high: float, mark: float
) -> Windowed:
    found = Windowed(high=high)
    for row, record in enumerate(columns.records()):
        if record.ts is None or not isfinite(record.ts):
            found.timeless.append(row)
            continue
        watermark = max(found.high - window.watermark, mark)
        its_windows = range(window.first(record.ts), window.last(record.ts) + 1)
        still_open = [index for index in its_windows if window.end(index) > watermark]
        if still_open:
            cell = found.cells.setdefault((still_open[0], still_open[-1]), {})
            _add(task, cell, record.key, record.value)
        else:
            found.late.append((row, watermark))
        found.high = max(found.high, record.ts)
    return found


def _assert_same(found: dict[Any, Any] | None, expected: dict[Any, Any]) -> None:
    assert found is not None
    assert found.keys() == expected.keys()
    for slot, partial in found.items():
        left = partial if isinstance(partial, tuple) else (partial,)
        right = expected[slot] if isinstance(partial, tuple) else (expected[slot],)
        assert list(map(type, left)) == list(map(type, right))
        for one, other in zip(left, right, strict=True):
            if isinstance(one, float):
                assert isclose(one, other, rel_tol=1e-9, abs_tol=1e-6) or (one != one and other != other)
            else:
                assert one == other


KEYS = [
    (st.none() | st.integers(-3, 3), pa.int64()),
    (st.none() | st.sampled_from(["", "a", "é", "user-7"]), pa.string()),
    (st.sampled_from([b"", b"a"]), pa.binary()),
    (st.booleans(), pa.bool_()),
    (st.dates().filter(lambda day: day.day < 3), pa.date32()),
    (st.none(), pa.null()),
]
ROW = st.fixed_dictionaries(
    {
        "whole": st.integers(-(2**40), 2**40) | st.integers(-2, 2),
        "small": st.integers(-128, 127),
        "real": st.floats(-1e6, 1e6) | st.just(nan),
        "day": st.dates(),
    }
)


@st.composite
def chunks(draw: st.DrawFn, times: st.SearchStrategy[float | None]) -> Columns:
    """Return columns of up to 30 records."""
    rows = draw(st.lists(ROW, max_size=30))
    keys, kind = draw(st.sampled_from(KEYS))
    count = len(rows)
    key_column = pa.array(draw(st.lists(keys, min_size=count, max_size=count)), kind)
    if kind == pa.string() and draw(st.booleans()):
        key_column = key_column.dictionary_encode()
    stamps = pa.array(draw(st.lists(times, min_size=count, max_size=count)), pa.float64())
    batch = pa.RecordBatch.from_pylist(rows, FIELDS)
    return Columns(batch, draw(st.sampled_from([key_column, key_column, None])), stamps)


@given(st.sampled_from(TASKS), chunks(st.none()))
def test_partial_results(task: ps.CombiningTask, columns: Columns) -> None:
    _assert_same(partials(task, columns), _one_by_one(task, columns))


WINDOWS = [
    TimeWindow(10),
    TimeWindow(10, watermark=3),
    TimeWindow(0.1),
    TimeWindow(0.3, slide=0.1, watermark=0.05),
    TimeWindow(10, slide=2.5, watermark=5),
    TimeWindow(5, slide=2, watermark=1),
    TimeWindow(1, slide=0.3),
]
TIMES = st.one_of(
    st.integers(-200, 200).map(lambda tenth: tenth * 0.1),
    st.integers(-20, 40).map(float),
    st.floats(1.7e9, 1.7e9 + 20),
    st.floats(0, 30),
    st.sampled_from([None, nan, inf, -inf]),
)


MARKS = st.sampled_from([-inf, 0.0, 12.5])


@given(st.sampled_from(TASKS), st.sampled_from(WINDOWS), chunks(TIMES), MARKS, MARKS)
def test_partial_results_of_windows(
    task: ps.CombiningTask, window: TimeWindow, columns: Columns, high: float, mark: float
) -> None:
    found = windowed_partials(task, window, columns, high, mark)
    expected = _windowed_one_by_one(task, window, columns, high, mark)
    assert found is not None
    assert found.cells.keys() == expected.cells.keys()
    for cell, its_partials in found.cells.items():
        _assert_same(its_partials, expected.cells[cell])
    assert (found.late, found.timeless, found.high) == (expected.late, expected.timeless, expected.high)


@given(st.sampled_from(WINDOWS), chunks(TIMES), MARKS, MARKS)
def test_records_go_into_the_windows_that_the_engine_puts_them_into(
    window: TimeWindow, columns: Columns, high: float, mark: float
) -> None:
    late: list[tuple[ps.Record, float]] = []
    wrong: list[ps.Record] = []
    assigner = WindowAssigner(window, high, mark)
    records = columns.records()
    cells = assigner.assign(records, lambda *entry: late.append(entry), lambda one, _: wrong.append(one))
    found = windowed_partials(ps.Count(), window, columns, high, mark)
    assert found is not None
    assert _counts(found) == Counter((cell, record.key) for cell, its in cells.items() for record in its)
    assert [(records[row], watermark) for row, watermark in found.late] == late
    assert [records[row] for row in found.timeless] == wrong
    assert found.high == assigner.high


def _counts(windows: Windowed | None) -> Counter[Any]:
    assert windows is not None
    return Counter({(cell, key): n for cell, its in windows.cells.items() for key, n in its.items()})


@given(st.sampled_from(WINDOWS), chunks(TIMES), st.integers(0, 30))
def test_the_cut_between_two_chunks_of_a_lane_changes_nothing(
    window: TimeWindow, columns: Columns, cut: int
) -> None:
    def part(start: int, stop: int | None) -> Columns:
        length = None if stop is None else stop - start
        keys = None if columns.keys is None else columns.keys.slice(start, length)
        return Columns(columns.values.slice(start, length), keys, columns.times.slice(start, length))

    cut = min(cut, len(columns))
    whole = windowed_partials(ps.Count(), window, columns, -inf)
    first = windowed_partials(ps.Count(), window, part(0, cut), -inf)
    assert whole is not None
    assert first is not None
    second = windowed_partials(ps.Count(), window, part(cut, None), first.high)
    assert second is not None
    assert _counts(first) + _counts(second) == _counts(whole)
    assert first.late + [(cut + row, mark) for row, mark in second.late] == whole.late
    assert second.high == whole.high


def _columns(values: Any, keys: Any = None, times: Any = None) -> Columns:
    return Columns(pa.record_batch({"v": values}), keys, times)


def test_sliding_windows_of_which_some_are_closed() -> None:
    times = pa.array([4.0, 11.0, 4.5, 6.0, 0.5], pa.float64())
    columns = _columns(pa.array([1, 2, 3, 4, 5]), pa.array(["a"] * 5), times)
    found = windowed_partials(ps.Sum("v"), TimeWindow(10, slide=5), columns, -inf)
    assert found is not None
    # The windows -1 and 0 begin at -5 and 0. At 11 both of them have ended.
    assert found.cells == {(-1, 0): {"a": 1}, (1, 2): {"a": 2}, (1, 1): {"a": 4}}
    assert found.late == [(2, 11.0), (4, 11.0)]
    assert found.high == 11.0


def test_sums_that_would_overflow_are_left_to_python() -> None:
    assert partials(ps.Sum("v"), _columns(pa.array([2**62, 2**62]))) is None
    assert partials(ps.Mean("v"), _columns(pa.array([2**63], pa.uint64()))) is None
    assert partials(ps.Max("v"), _columns(pa.array([2**63], pa.uint64()))) == {None: 2**63}


@pytest.mark.parametrize(
    "task",
    [ps.Sum(), ps.Sum("w"), ps.Max(lambda v: v["v"]), ps.Distinct("v"), ps.Reduce(max), ps.TopN(1)],
    ids=lambda task: type(task).__name__,
)
def test_tasks_that_need_the_records_themselves(task: ps.CombiningTask) -> None:
    columns = _columns(pa.array([1, 2]), times=pa.array([1.0, 2.0]))
    assert partials(task, columns) is None
    assert windowed_partials(task, TimeWindow(1), columns, -inf) is None


def test_a_task_of_ones_own_is_not_taken_for_what_it_is_made_from() -> None:
    class Doubled(ps.Sum):
        def lift(self, value: Any) -> Any:
            return 2 * super().lift(value)

    assert partials(Doubled("v"), _columns(pa.array([1]))) is None


@pytest.mark.parametrize(
    "columns",
    [
        _columns(pa.array([1, None])),
        _columns(pa.array([True, False])),
        _columns(pa.array(["a", "b"])),
        _columns(pa.array([1, 2]), keys=pa.array([0.0, -0.0])),
        Columns(pa.RecordBatch.from_arrays([pa.array([1, 2])] * 2, names=["v", "v"])),
    ],
    ids=["null", "boolean", "text", "float keys", "field twice"],
)
def test_columns_that_python_would_treat_differently(columns: Columns) -> None:
    assert partials(ps.Sum("v"), columns) is None


def test_times_that_have_no_exact_window_are_left_to_python() -> None:
    columns = _columns(pa.array([1]), times=pa.array([1e300]))
    assert windowed_partials(ps.Count(), TimeWindow(1), columns, -inf) is None
    processing = TimeWindow(1, time="processing")
    assert windowed_partials(ps.Count(), processing, _columns(pa.array([1])), -inf) is None
