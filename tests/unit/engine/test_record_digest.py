"""Digests of records: equal values give equal numbers, wherever they come from and however they are cut."""

from __future__ import annotations

import pickle
import random
import sys
from collections import Counter, OrderedDict, defaultdict
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntFlag
from fractions import Fraction
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.columns import Columns
from penstock.engine.record_digest import add_digests, chained_digests, digest
from penstock.graph.windows import WindowValues
from penstock.record import Record
from penstock.schema.record_schema import Schema


class Colour(Enum):
    RED = 1
    BLUE = 2


class Rights(IntFlag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Point:
    x: int
    y: float
    tags: list[str] = field(default_factory=list)

    @cached_property
    def size(self) -> float:
        return abs(self.x + self.y)


@dataclass(frozen=True, slots=True)
class Slotted:
    a: int


class Plain:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class Text(str):
    """A string of one's own."""


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
others = st.one_of(
    st.datetimes(),
    st.decimals(),
    st.fractions(),
    st.uuids(),
    st.sampled_from(Colour),
    st.builds(Point, st.integers(), st.floats(), st.lists(st.text())),
    st.builds(Slotted, st.integers()),
    st.frozensets(st.integers() | st.text()),
    st.sets(st.builds(Slotted, st.integers())),
    st.lists(st.integers(-1000, 1000)).map(np.array),
    st.lists(st.text()).map(lambda words: np.array(words, dtype=object)),
    st.floats().map(np.float64),
    st.lists(st.integers()).map(lambda values: WindowValues(values, 1.0, 2.0)),
)
values = (
    plain | others | st.lists(plain | others, max_size=3) | st.dictionaries(st.text(), others, max_size=3)
)
records = st.lists(st.builds(Record, plain | others, values, st.none() | st.floats()), max_size=6)


@given(records)
def test_what_comes_back_from_the_disk_has_the_same_digest(given_records: list[Record]) -> None:
    whole = pickle.loads(pickle.dumps(given_records, protocol=5))
    one_by_one = [pickle.loads(pickle.dumps(record, protocol=5)) for record in given_records]

    assert digest(whole) == digest(one_by_one) == digest(deepcopy(given_records)) == digest(given_records)


@given(records, st.randoms(use_true_random=False), st.integers(0, 6))
def test_neither_the_order_nor_the_cut_matters(
    given_records: list[Record], shuffler: random.Random, cut: int
) -> None:
    shuffled = list(given_records)
    shuffler.shuffle(shuffled)
    total: dict[str, int] = {}
    for part in (shuffled[:cut], shuffled[cut:]):
        add_digests(total, {"out": digest(part)})

    assert total == {"out": digest(given_records)}


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(0, 3)), min_size=1, max_size=5), st.data())
def test_a_change_shows(pairs: list[tuple[str, int]], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(pairs) - 1))
    changed = list(pairs)
    changed[place] = (pairs[place][0], data.draw(st.integers(4, 9)))

    assert digest(changed) != digest(pairs)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("a", b"a"),
        ((1, 2), [1, 2]),
        ({"a": 1}, {"a": 2}),
        (Colour.RED, Colour.BLUE),
        (Rights.READ, Rights.READ | Rights.WRITE),
        (Point(1, 2.0), Point(1, 3.0)),
        (Slotted(1), Slotted(2)),
        (Plain(a=1), Plain(a=2)),
        (Text("a"), Text("b")),
        (Decimal("1.0"), Decimal("1.00")),
        (Fraction(1, 2), Fraction(1, 3)),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
        (timedelta(1), timedelta(2)),
        (UUID(int=1), UUID(int=2)),
        (PurePosixPath("a"), PurePosixPath("b")),
        (np.array([1, 2]), np.array([1, 3])),
        (np.array(["a", None], dtype=object), np.array(["b", None], dtype=object)),
        (np.float64(1), np.float64(2)),
        (WindowValues([1], 0, 1), WindowValues([1], 1, 2)),
        (Counter("aab"), Counter("abb")),
        (OrderedDict(a=1), OrderedDict(a=2)),
        (defaultdict(int, a=1), defaultdict(int, a=2)),
        ({Slotted(1)}, {Slotted(2)}),
        ({Slotted(1): 1}, {Slotted(2): 1}),
        (len, max),
        (bytearray(b"a"), bytearray(b"b")),
    ],
)
def test_different_values_have_different_digests(one: Any, other: Any) -> None:
    def of(value: Any) -> int:
        return digest([Record("key", value)])

    assert of(one) != of(other)
    assert of(one) == of(deepcopy(one)) == of(pickle.loads(pickle.dumps(one)))


def test_the_same_objects_and_equal_ones_are_the_same() -> None:
    text = "".join(["sha", "red"])
    interned, point = sys.intern(text), Point(1, 2.0)

    assert digest([Record(text, [text, text])]) == digest([Record(interned, [str(text), "sha" + "red"])])
    assert digest([Record(1, [point, point])]) == digest([Record(1, [Point(1, 2.0), Point(1, 2.0)])])


def test_sets_are_the_same_in_whatever_order_they_were_filled() -> None:
    numbers = [8, 0, 16, 24]
    forwards, backwards = set(numbers), set(sorted(numbers, reverse=True))  # noqa: C414 - the order counts

    assert list(forwards) != list(backwards)
    assert digest([Record(1, forwards)]) == digest([Record(1, backwards)])


def test_what_an_object_keeps_beside_its_fields_does_not_matter() -> None:
    looked_at, fresh = Point(1, 2.0), Point(1, 2.0)
    assert looked_at.size == 3.0

    assert digest([Record(1, looked_at)]) == digest([Record(1, fresh)])


def test_how_an_array_lies_in_memory_does_not_matter() -> None:
    array = np.arange(6).reshape(2, 3)

    assert digest([Record(1, array.T)]) == digest([Record(1, np.ascontiguousarray(array.T))])
    assert digest([Record(1, array[:, ::2])]) == digest([Record(1, array[:, ::2].copy())])
    assert digest([Record(1, [np.array([[], []], dtype=object)])]) != digest([Record(1, [array])])


def test_a_plain_record_is_the_same_beside_one_that_is_not() -> None:
    plain_one = Record("a", {"b": [1, (2, None)], "c": {3, "d"}}, 1.5)
    other = Record("b", Point(1, 2.0))

    assert digest([plain_one, other]) == (digest([plain_one]) + digest([other])) % 2**64


def test_what_contains_itself_is_told_by_its_type() -> None:
    endless: list[Any] = []
    endless.append(endless)

    assert digest([Record(1, endless)]) == digest([Record(1, deepcopy(endless))])


def test_columns_are_the_same_as_their_records() -> None:
    schema = Schema.of("name string, amount double")
    given_records = [
        Record("a", {"name": "x", "amount": 1.5}, 2.0),
        Record("b", {"name": "y", "amount": 0.5}),
    ]
    columns, _ = Columns.of(given_records, schema)

    assert digest(Columns(columns.values, columns.keys, columns.times, schema).records()) == digest(
        given_records
    )


def test_a_chain_tells_in_which_order_batches_came() -> None:
    first, second = {"count": digest([("a", 1)])}, {"count": digest([("a", 2)]), "sum": 7}

    there = chained_digests(chained_digests({}, first), second)
    back = chained_digests(chained_digests({}, second), first)

    assert there.keys() == back.keys() == {"count", "sum"}
    assert there != back
    assert all(0 <= number < 2**64 for number in [*there.values(), *back.values()])
    assert chained_digests(there, {}) != there
