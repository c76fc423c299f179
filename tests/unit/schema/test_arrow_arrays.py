"""Arrays that are built from their buffers equal those that pyarrow makes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.schema.arrow_arrays import array_from_buffers, array_of, numbers_in

KINDS = [
    (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.binary(), st.binary()),
    (pa.large_binary(), st.binary()),
    (pa.large_utf8(), st.text()),
]


@pytest.mark.parametrize(("kind", "plain"), KINDS, ids=[str(kind) for kind, _ in KINDS])
@given(data=st.data())
def test_an_array_is_the_one_that_pyarrow_makes(
    kind: pa.DataType, plain: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    values = data.draw(st.lists(plain) | st.lists(plain | st.none()))
    array = array_from_buffers(values, kind)
    assert array is not None
    array.validate(full=True)
    assert array.equals(pa.array(values, kind))
    assert array.to_pylist() == values
    assert array_of(tuple(values), kind).equals(array)


@given(st.lists(st.floats()), st.integers(0, 5))
def test_numbers_are_those_of_the_array(numbers: list[float], start: int) -> None:
    array = pa.array(numbers, pa.float64()).slice(start)
    assert [number.hex() for number in numbers_in(array)] == [number.hex() for number in numbers[start:]]
    whole = pa.array([int(number) for number in numbers if abs(number) < 1e18], pa.int64()).slice(start)
    assert numbers_in(whole) == whole.to_pylist()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True], pa.int64()),
        ([1], pa.float64()),
        ([1.0], pa.int64()),
        ([b"a"], pa.large_utf8()),
        ([1], pa.int8()),
        ([[1]], pa.list_(pa.int64())),
    ],
)
def test_what_is_not_plain_is_left_to_pyarrow(values: list[Any], kind: pa.DataType) -> None:
    assert array_from_buffers(values, kind) is None


@pytest.mark.parametrize(
    ("values", "kind", "error"),
    [
        ([1 << 63], pa.int64(), OverflowError),
        ([1 << 31], pa.int32(), OverflowError),
        (["\ud800"], pa.large_utf8(), UnicodeEncodeError),
    ],
)
def test_values_that_do_not_fit_are_refused(values: list[Any], kind: pa.DataType, error: type) -> None:
    with pytest.raises(error):
        array_from_buffers(values, kind)
