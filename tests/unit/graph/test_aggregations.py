"""Built-in aggregations: what they compute, and that the order of merging does not matter."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.graph.samples import NoSink, NoSource

import penstock as ps
from penstock.graph.aggregations import Aggregation, Parts, merge_parts


@dataclass
class Order:
    user: str
    price: float


def _result(task: ps.CombiningTask, values: list[Any]) -> Any:
    return task.result(reduce(task.merge, map(task.lift, values)))


def _split_and_merged(task: ps.CombiningTask, values: list[Any], data: st.DataObject) -> Any:
    """Merge partial results pair by pair, in any order, with a journey between processes now and then."""
    partials = [task.lift(value) for value in values]
    while len(partials) > 1:
        left = partials.pop(data.draw(st.integers(0, len(partials) - 1)))
        at = data.draw(st.integers(0, len(partials) - 1))
        before = pickle.dumps((left, partials[at]))
        merged = task.merge(left, partials[at])
        assert pickle.dumps((left, partials[at])) == before, "merge changed its arguments"
        partials[at] = pickle.loads(pickle.dumps(merged)) if data.draw(st.booleans()) else merged
    return task.result(partials[0])


ints = st.integers(-(10**20), 10**20) | st.integers(-5, 5)
floats = st.floats(allow_nan=False, allow_infinity=False, width=32)
with_nan = st.floats(allow_infinity=True) | st.integers(-3, 3)


def _number(value: Any) -> Any:
    return "nan" if value != value else value


def _most(values: list[Any], choose: Callable[..., Any]) -> Any:
    proper = [value for value in values if value == value]
    return choose(proper) if proper else "nan"


def _top(values: list[Any], n: int) -> list[Any]:
    return sorted(map(_rank, values), reverse=True)[:n]


def _rank(value: Any) -> float:
    return -math.inf if value != value else value


@given(st.lists(ints, min_size=1, max_size=12), st.data())
def test_sums_and_means_of_whole_numbers_are_exact(values: list[int], data: st.DataObject) -> None:
    assert _split_and_merged(ps.Count(), values, data) == len(values)
    assert _split_and_merged(ps.Sum(), values, data) == sum(values)
    assert _split_and_merged(ps.Mean(), values, data) == sum(values) / len(values)


@given(st.lists(floats, min_size=1, max_size=12), st.data())
def test_sums_and_means_of_floats_are_right_up_to_rounding(values: list[float], data: st.DataObject) -> None:
    slack = 1e-12 * sum(map(abs, values))
    assert abs(_split_and_merged(ps.Sum(), values, data) - math.fsum(values)) <= slack
    assert abs(_split_and_merged(ps.Mean(), values, data) - math.fsum(values) / len(values)) <= slack


@given(st.lists(with_nan, min_size=1, max_size=12), st.data())
def test_the_smallest_and_largest_do_not_depend_on_order_even_with_nan(
    values: list[Any], data: st.DataObject
) -> None:
    assert _number(_split_and_merged(ps.Min(), values, data)) == _most(values, min)
    assert _number(_split_and_merged(ps.Max(), values, data)) == _most(values, max)


@given(st.lists(with_nan | st.text(max_size=2) | st.booleans(), min_size=1, max_size=15), st.data())
def test_distinct_values_are_counted_once(values: list[Any], data: st.DataObject) -> None:
    expected = {_number(value) for value in values}
    if any(value == "nan" for value in values):
        return
    assert _split_and_merged(ps.Distinct(), values, data) == len(expected)
    listed = _split_and_merged(ps.Distinct(values=True), values, data)
    assert len(listed) == len(expected)
    assert {_number(value) for value in listed} == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.text("ab", max_size=2)), min_size=1, max_size=15), st.data())
def test_the_largest_are_the_same_in_any_order(values: list[tuple[int, str]], data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 6))
    task = ps.TopN(n, of=lambda value: value[0])
    expected = sorted(values, key=lambda value: (-value[0], repr(value)))[:n]
    assert _split_and_merged(task, values, data) == expected
    assert _split_and_merged(ps.TopN(n), values, data) == sorted(values, reverse=True)[:n]


@given(st.lists(with_nan, min_size=1, max_size=10), st.integers(1, 4), st.data())
def test_nan_is_below_all_among_the_largest(values: list[Any], n: int, data: st.DataObject) -> None:
    found = _split_and_merged(ps.TopN(n), values, data)
    assert [_rank(value) for value in found] == _top(values, n)


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=20), st.data())
def test_quantiles_are_those_of_numpy(values: list[int], data: st.DataObject) -> None:
    wanted = data.draw(
        st.lists(st.floats(0, 1) | st.sampled_from([0, 0.25, 0.5, 0.9, 1]), min_size=1, max_size=4)
    )
    found = _split_and_merged(ps.Quantiles(wanted), values, data)
    assert found == pytest.approx(np.quantile(values, wanted).tolist())


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=40), min_size=1, max_size=30))
def test_parts_stay_few_and_lose_nothing(lists: list[list[int]]) -> None:
    parts: Parts = (tuple(lists[0]),)
    for values in lists[1:]:
        parts = merge_parts(parts, (tuple(values),), tuple.__add__)
    assert sorted(value for part in parts for value in part) == sorted(chain.from_iterable(lists))
    assert all(len(left) >= 2 * len(right) for left, right in pairwise(parts))


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (ps.Sum("price"), 9),
        (ps.Min("price"), 2),
        (ps.Max("price"), 4),
        (ps.Mean("price"), 3.0),
        (ps.Distinct("user"), 2),
        (ps.Distinct("user", values=True), ["a", "b"]),
        (ps.Quantiles(0.5, of="price"), [3]),
    ],
)
def test_a_field_of_dicts_and_of_objects(task: ps.CombiningTask, expected: Any) -> None:
    rows = [("a", 3), ("b", 4), ("a", 2)]
    assert _result(task, [{"user": user, "price": price} for user, price in rows]) == expected
    assert _result(task, [Order(user, price) for user, price in rows]) == expected
    assert _result(pickle.loads(pickle.dumps(task)), [Order(*row) for row in rows]) == expected


def test_the_largest_keep_the_whole_value() -> None:
    orders = [Order("a", 3), Order("b", 4), Order("c", 3)]
    assert _result(ps.TopN(2, of="price"), orders) == [orders[1], orders[0]]


def test_a_function_reads_what_is_aggregated() -> None:
    assert _result(ps.Max(of=len), ["a", "abc", "ab"]) == 3


@pytest.mark.parametrize(
    "task", [ps.Sum("price"), ps.Min("price"), ps.Distinct("price"), ps.TopN(1, "price")]
)
def test_a_missing_field_is_named(task: ps.CombiningTask) -> None:
    with pytest.raises(KeyError, match="no field 'price': its fields are 'prize'"):
        task.lift({"prize": 1})
    with pytest.raises(AttributeError, match="<object> has no field 'price'"):
        task.lift(object())


@pytest.mark.parametrize("task", [ps.Min(), ps.Max(), ps.Mean(), ps.TopN(1), ps.Quantiles()])
def test_none_is_not_a_value_to_compare(task: Aggregation) -> None:
    with pytest.raises(TypeError, match=f"{type(task).__name__}: the value is None"):
        task.lift(None)


def test_values_that_cannot_be_aggregated_are_refused() -> None:
    with pytest.raises(TypeError, match="the field 'price' is None"):
        ps.Mean("price").lift({"price": None})
    with pytest.raises(TypeError, match="Distinct: a dict is not hashable"):
        ps.Distinct().lift({})
    with pytest.raises(ValueError, match="Quantiles: the value is NaN"):
        ps.Quantiles().lift(math.nan)


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (ps.TopN(0), "TopN: n must be a whole number from 1 on, not 0"),
        (ps.TopN(True), "TopN: n must be a whole number from 1 on, not True"),
        (ps.Quantiles(1.5), "Quantiles: a quantile must be from 0 to 1, not 1.5"),
        (ps.Quantiles((0.5, "0.9")), "Quantiles: a quantile must be from 0 to 1, not '0.9'"),  # type: ignore[arg-type]
        (ps.Quantiles(math.nan), "Quantiles: a quantile must be from 0 to 1, not nan"),
        (ps.Quantiles(()), "Quantiles: at least one quantile is required"),
        (ps.Sum(3), "Sum: of must be a field name, a function or None, not 3"),  # type: ignore[arg-type]
        (ps.Max(""), "Max: of must be a field name, a function or None, not ''"),
    ],
)
def test_validation_says_what_is_wrong(task: ps.CombiningTask, reason: str) -> None:
    job = ps.Job("job")
    job.source("in", NoSource()) >> job.task("sum", task) >> job.sink("out", NoSink())
    with pytest.raises(ps.GraphError) as failure:
        job.validate()
    assert [problem.code for problem in failure.value.problems] == ["bad-task"]
    assert reason in str(failure.value)
