"""The hash that places keys: equal keys agree, in every process."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath
from uuid import UUID
from zlib import crc32
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.key_hash import UnequalKeyError, key_hash

TWICE = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
"""A time that comes twice, when the clock is turned back."""
LAST = datetime.max.replace(tzinfo=timezone(-timedelta(hours=5)))

KEYS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=6,
)


@dataclass(frozen=True)
class Place:
    """A key of the user's own."""

    x: int
    y: int


@given(KEYS)
def test_hash_is_32_bits_and_repeatable(key: object) -> None:
    assert 0 <= key_hash(key) < 2**32
    assert key_hash(key) == key_hash(key)


@given(st.integers(-(2**60), 2**60))
def test_equal_numbers_have_equal_hashes(number: int) -> None:
    assert key_hash(number) == key_hash(complex(number)) or complex(number) != number
    assert key_hash(number) == key_hash(float(number)) or float(number) != number


class Colour(str, Enum):  # noqa: UP042 - the old form, which many still have
    """A string that is also an enum."""

    RED = "red"


class Day(date):
    """A date with something more to it."""


class Holiday(date, Enum):
    """An enum of dates, which are equal to dates."""

    NEW_YEAR = (2026, 1, 1)


class Shade(Enum):
    """An enum of its own."""

    DARK = 1


@dataclass(frozen=True)
class Tagged:
    """A key of which one field does not count."""

    name: str
    note: str = field(compare=False)


class Own:
    """A class that says what its key is."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __hash__(self) -> int:
        return 1

    def __penstock_key__(self) -> tuple[str, int]:
        return ("own", 1)


class Caseless(str):
    """Text that is equal to other text, and says so."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


class Keyed(Caseless):
    """The same with what places it."""

    __slots__ = ()

    def __penstock_key__(self) -> str:
        return self.lower()


class Pair(tuple[int, int]):
    """A pair in any order."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and sorted(self) == sorted(other)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self)))


class Hour(int):
    """A number on a clock."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and int(self) % 12 == int(other) % 12

    def __hash__(self) -> int:
        return hash(int(self) % 12)


@dataclass(frozen=True)
class Name:
    """A dataclass whose fields do not say what it is equal to."""

    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) and self.text.lower() == other.text.lower()

    def __hash__(self) -> int:
        return hash(self.text.lower())


@dataclass(frozen=True, eq=False)
class Same:
    """A dataclass that is equal to itself alone."""

    text: str


class Plain:
    """A class that says what its key is, but not what it is equal to."""

    def __penstock_key__(self) -> str:
        return "plain"


@dataclass(frozen=True, eq=False)
class Noted(Place):
    """A place with a field that its equality, which is that of a place, does not know."""

    note: str = ""


@dataclass(frozen=True)
class Size:
    """What the members of an enum are made of."""

    width: int


class Paper(Size, Enum):
    """An enum of a dataclass."""

    A4 = 210


def test_equal_keys_have_equal_hashes_whatever_they_are_made_of() -> None:
    one, other = "".join("ab"), "".join(["a", "b"])
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    pairs = [
        (Colour.RED, "red"),
        (Place(1, 2), Place(1, 2)),
        ((one, one), (one, other)),
        (Tagged("a", "x"), Tagged("a", "y")),
        (noon, noon.astimezone(timezone(timedelta(hours=5)))),
        (PurePosixPath("a/b"), Path("a/b")),
        (PureWindowsPath("C:/A"), PureWindowsPath("c:\\a")),
        (time(12, tzinfo=UTC), time(17, tzinfo=timezone(timedelta(hours=5)))),
        (time(12, fold=1), time(12)),
        (Day(2026, 1, 1), date(2026, 1, 1)),
        (Holiday.NEW_YEAR, date(2026, 1, 1)),
        (np.datetime64("2026-01-01", "D"), np.datetime64("2026-01-01T00:00:00", "ns")),
        (np.datetime64("2026", "Y"), np.datetime64("2026-01-01", "s")),
        (np.timedelta64(1, "h"), np.timedelta64(3600, "s")),
        (Decimal(1), 1),
        (np.int64(7), 7),
        (np.True_, True),
        (frozenset([Shade.DARK, 1]), frozenset([1, Shade.DARK])),
        (Own(), ("own", 1)),
        (Keyed("Ab"), Keyed("aB")),
        (Keyed("Ab"), "ab"),
        (Noted(1, 2, "a"), Noted(1, 2, "b")),
        (TWICE, TWICE.replace(fold=1)),
        (pd.Timestamp(TWICE.replace(fold=1)), TWICE.replace(fold=1)),
        (np.datetime64("2026-01-01T12:00", "ms"), datetime(2026, 1, 1, 12)),
        (pd.Timestamp("2026-01-01 12:00"), datetime(2026, 1, 1, 12)),
        (pd.Timestamp("2026-01-01 12:00"), np.datetime64("2026-01-01T12", "h")),
        (pd.Timestamp("2026-01-01 00:00:00.000000001"), np.datetime64("2026-01-01T00:00:00.000000001", "ns")),
        (pd.Timestamp("2026-01-01 13:00", tz="Europe/Berlin"), noon),
        (pd.Timestamp(np.datetime64("20000-01-01", "s")), np.datetime64("20000-01-01", "D")),
        (np.timedelta64(90, "m"), timedelta(minutes=90)),
        (np.timedelta64(-1, "ns"), pd.Timedelta(-1, "ns")),
        (pd.Timedelta(minutes=90), timedelta(minutes=90)),
        (np.timedelta64(1, "Y"), np.timedelta64(12, "M")),
        (np.timedelta64(10**17, "s"), np.timedelta64(10**17, "s")),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), b"a"),
        (LAST, LAST.replace(microsecond=LAST.microsecond)),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),) * 2,
    ]
    for left, right in pairs:
        assert key_hash(left) == key_hash(right), (left, right)
    assert key_hash(Shade.DARK) != key_hash(Place(1, 2))


@pytest.mark.parametrize(
    "key",
    [
        float("nan"),
        Decimal("NaN"),
        Decimal("sNaN"),
        complex("nan"),
        ("a", (float("nan"),)),
        np.float32("nan"),
        np.datetime64("NaT"),
        np.timedelta64("NaT"),
        pd.NaT,
        frozenset([float("nan")]),
    ],
    ids=repr,
)
def test_what_is_not_equal_to_itself_is_refused(key: object) -> None:
    with pytest.raises(UnequalKeyError, match="not equal to itself"):
        key_hash(key)


def test_the_keys_of_most_jobs_are_where_version_1_put_them() -> None:
    there = [date(2026, 1, 1), time(12), timedelta(1), UUID(int=1), PosixPath("a")]
    assert [key_hash(key) for key in there] == [crc32(repr(key).encode()) for key in there]


@pytest.mark.parametrize("key", [Caseless("a"), Pair((1, 2)), Hour(3), Name("a"), ("x", Name("a"))], ids=repr)
def test_a_key_with_an_equality_of_its_own_is_refused_unless_it_says_what_places_it(key: object) -> None:
    with pytest.raises(TypeError, match=r"it defines __eq__ or __hash__.*__penstock_key__"):
        key_hash(key)


@pytest.mark.parametrize("key", [Same("a"), Plain(), (1, Same("a"))], ids=["dataclass", "class", "tuple"])
def test_a_key_that_is_equal_to_itself_alone_is_refused(key: object) -> None:
    with pytest.raises(TypeError, match="equal only if they are the same object"):
        key_hash(key)


def test_a_duration_without_a_unit_is_refused() -> None:
    with pytest.raises(TypeError, match="no unit"):
        key_hash(np.timedelta64(5))


def test_members_of_enums_are_keys_whatever_they_are_made_of() -> None:
    assert key_hash(Paper.A4) == key_hash(("Paper", 210))


def test_the_keys_of_most_jobs_are_where_version_2_put_them() -> None:
    noon = datetime(2026, 1, 1, 12)
    assert key_hash(noon) == crc32(b"2026-01-01T12:00:00")
    assert key_hash(noon.replace(tzinfo=UTC)) == crc32(b"2026-01-01T12:00:00+00:00")
    assert key_hash(Place(1, 2)) == key_hash(("Place", 1, 2))
    assert key_hash(Shade.DARK) == key_hash(("Shade", "DARK"))
    assert key_hash(("a", 1.5, b"x")) == 2351004167


def test_what_has_no_lasting_hash_is_refused() -> None:
    with pytest.raises(TypeError, match="__penstock_key__"):
        key_hash(object())


def test_the_hash_does_not_depend_on_the_process() -> None:
    code = (
        "from penstock.key_hash import key_hash; print([key_hash(k) for k in ('word', 7, ('a', 1.5), b'x')])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert said == {f"{[key_hash(k) for k in ('word', 7, ('a', 1.5), b'x')]}\n"}


def test_neighbouring_integers_and_words_spread() -> None:
    for keys in (range(10_000), [f"word{n}" for n in range(10_000)], [Place(n, n % 7) for n in range(3_000)]):
        shares = [0] * 8
        for key in keys:
            shares[key_hash(key) % 8] += 1
        assert max(shares) < 1.25 * sum(shares) / 8
