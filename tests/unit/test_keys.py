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

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.keys import UnequalKeyError, key_hash

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

    def __penstock_key__(self) -> tuple[str, int]:
        return ("own", 1)


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


def test_what_has_no_lasting_hash_is_refused() -> None:
    with pytest.raises(TypeError, match="__penstock_key__"):
        key_hash(object())


def test_the_hash_does_not_depend_on_the_process() -> None:
    code = "from penstock.keys import key_hash; print([key_hash(k) for k in ('word', 7, ('a', 1.5), b'x')])"
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
