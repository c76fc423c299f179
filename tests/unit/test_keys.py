"""The hash that places keys: equal keys agree, in every process."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock.keys import key_hash

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
