"""Digests of what a batch has given, by which replicas see whether they agree."""

from __future__ import annotations

from collections.abc import Mapping

_MODULUS = 1 << 64
_FACTOR = 1_000_003


def chained(before: Mapping[str, int], new: Mapping[str, int]) -> dict[str, int]:
    """Return the digest of all changes so far, by vertex."""
    names = {*before, *new}
    return {name: (before.get(name, 0) * _FACTOR + new.get(name, 0)) % _MODULUS for name in sorted(names)}
