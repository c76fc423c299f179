"""Whatever a log takes comes back as it was, types included; what it cannot take is refused by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import LogError, UnstorableValueError
from penstock.log import record_codec, tagged_json
from penstock.record import Record

any_text = st.text(st.characters(exclude_categories=[]))
offsets = st.timedeltas(min_value=timedelta(hours=-23), max_value=timedelta(hours=23))
zones = st.one_of(
    st.none(),
    st.just(UTC),
    st.timezones(),
    st.builds(timezone, offsets),
    st.builds(timezone, offsets, st.text(max_size=5)),
)
hashable_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(1 << 70), max_value=1 << 70),
    st.floats(),
    any_text,
    st.binary(),
    st.datetimes(timezones=zones, allow_imaginary=True),
    st.dates(),
    st.timedeltas(),
    st.decimals(),
)
# A signalling NaN has no hash.
elements = hashable_scalars.filter(lambda v: not (isinstance(v, Decimal) and v.is_snan()))
hashables = st.recursive(
    elements,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
tag_like = st.sampled_from(["$tuple", "$dict", "$", "$int", "$nobody"])
values = st.recursive(
    hashable_scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(any_text | tag_like, inner, max_size=3),
        st.dictionaries(hashables, inner, max_size=3),
        st.sets(hashables, max_size=3),
        st.frozensets(hashables, max_size=3),
    ),
    max_leaves=12,
)
columns = st.one_of(
    *(
        st.lists(st.none() | kind, min_size=1, max_size=8)
        for kind in (st.integers(), st.floats(), st.booleans(), any_text, st.binary(), values)
    )
)


def same(left: Any, right: Any) -> bool:
    """Equal in value and in every type; NaN is the same as NaN, 0.0 is not the same as -0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or (left == right and repr(left) == repr(right))
    if isinstance(left, Decimal):
        return str(left) == str(right)
    if isinstance(left, datetime):
        return (
            left.replace(tzinfo=None) == right.replace(tzinfo=None)
            and left.fold == right.fold
            and repr(left.tzinfo) == repr(right.tzinfo)
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, set | frozenset):
        return len(left) == len(right) and all(any(same(a, b) for b in right) for a in left)
    return bool(left == right)


def round_trip(records: Sequence[Record]) -> list[Record]:
    return [record for chunk in record_codec.decode(record_codec.encode(records)) for record in chunk]


@given(values)
@settings(max_examples=4 * settings().max_examples, deadline=None)
def test_a_value_survives_its_text(value: Any) -> None:
    assert same(tagged_json.loads(tagged_json.dumps(value)), value)


@given(columns, columns, st.none() | st.floats())
@settings(max_examples=4 * settings().max_examples, deadline=None)
def test_records_survive_their_segment(keys: list[Any], entries: list[Any], ts: float | None) -> None:
    records = [Record(key, value, ts) for key, value in zip(keys, entries, strict=False)]
    assert same(round_trip(records), records)


@pytest.mark.parametrize(
    "value",
    [
        [1, 1.0, True, "1"],
        [0, False, 0.0, -0.0],
        [10**5000, -(10**5000)],
        [(1 << 63) - 1, 1 << 63, -(1 << 63), -(1 << 63) - 1],
        ["\ud800\udc00", "\U00010000", "\udc00\ud800"],
        {"$tuple": [1]},
        {"$nobody": 1, "more": 2},
        {"a": {"$dict": [[1, 2]]}},
        {1: "int", "1": "str", (1,): "tuple", None: "none"},
        {"\ud800": 1},
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET")),
        [date(2026, 1, 1), datetime(2026, 1, 1)],
        [Decimal("1.10"), Decimal("-0"), Decimal("sNaN"), Decimal("1E+500")],
        [float("nan"), float("inf"), float("-inf")],
        [[], (), {}, set(), frozenset()],
        b"\x00\xff",
    ],
)
def test_the_awkward_ones(value: Any) -> None:
    assert same(tagged_json.loads(tagged_json.dumps(value)), value)
    assert same(round_trip([Record(None, value), Record(None, "other")])[0].value, value)


@pytest.mark.parametrize(
    ("entries", "arrow_type"),
    [
        (["a", None], "large_string"),
        ([1, None], "int64"),
        ([1.0, None], "double"),
        ([True, None], "bool"),
        ([b"a", None], "large_binary"),
        ([None, None], "null"),
    ],
)
def test_one_simple_type_is_stored_natively(entries: list[Any], arrow_type: str) -> None:
    batch = record_codec.open_stream(record_codec.encode([Record(None, entry) for entry in entries]))
    assert str(batch.schema.field("value").type) == arrow_type
    assert batch.schema.field("value").metadata is None


@pytest.mark.parametrize("entries", [[1, 1.0], [1 << 64], ["\ud800"], [(1, 2)], [{"a": 1}], [True, 1]])
def test_anything_else_is_marked_json(entries: list[Any]) -> None:
    batch = record_codec.open_stream(record_codec.encode([Record(None, entry) for entry in entries]))
    assert batch.schema.field("value").metadata == {b"codec": b"json"}


def test_equal_sets_have_equal_text() -> None:
    # Zero and eight collide in a small table, so the order of insertion shows.
    one, other = set([0, 8]), set([8, 0])  # noqa: C405
    assert list(one) != list(other)
    assert tagged_json.dumps(one) == tagged_json.dumps(other)


class Colour(IntEnum):
    RED = 1


class Pair(NamedTuple):
    a: int


class Own:
    pass


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Own(), "Own"),
        (lambda: None, "function"),
        (Colour.RED, "Colour"),
        (Pair(1), "Pair"),
        ([{"deep": Own()}], "Own"),
        (bytearray(b"x"), "bytearray"),
        (1j, "complex"),
        ({Own(): 1}, "Own"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(value: Any, name: str) -> None:
    with pytest.raises(UnstorableValueError, match=rf"{name}: turn it into plain data first"):
        record_codec.encode([Record(None, value)])


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(UnstorableValueError, match="levels deep"):
        record_codec.encode([Record(None, loop)])


def test_the_deepest_value_that_is_taken_comes_back() -> None:
    value: Any = 1 << 70
    for _ in range(tagged_json.MAX_DEPTH):
        value = (value,)
    assert tagged_json.loads(tagged_json.dumps(value)) == value
    with pytest.raises(UnstorableValueError):
        tagged_json.dumps((value,))


@pytest.mark.parametrize("ts", ["yesterday", True, 10**400])
def test_a_time_is_a_number(ts: Any) -> None:
    with pytest.raises(UnstorableValueError, match="ts must be seconds"):
        record_codec.encode([Record(None, 1, ts)])


def test_an_integer_time_becomes_a_float() -> None:
    assert same(round_trip([Record(None, 1, 5), Record(None, 1, 5.5)])[0].ts, 5.0)


def test_an_unknown_form_is_an_error_and_not_data() -> None:
    with pytest.raises(LogError, match="does not support the value encoding"):
        tagged_json.loads('{"$future": 1}')
    with pytest.raises(LogError, match="cannot decode a value"):
        tagged_json.loads('{"$datetime": ["2026-01-01T00:00:00", 0, "No/Where"]}')


def test_long_streams_are_decoded_in_slices() -> None:
    records = [Record(number, str(number), float(number)) for number in range(2 * record_codec.CHUNK + 10)]
    payload = record_codec.encode(records)
    assert [len(chunk) for chunk in record_codec.decode(payload)] == [
        record_codec.CHUNK,
        record_codec.CHUNK,
        10,
    ]
    middle = [record for chunk in record_codec.decode(payload, 5, record_codec.CHUNK + 7) for record in chunk]
    assert middle == records[5 : record_codec.CHUNK + 7]
