"""The chain of files that holds the state of a bucket: its newest file, and when it is begun anew.

A chain begins with a base, which holds all state of the bucket, and continues with deltas. Everything here is
decided from the heads of the chains, which are in the ledger; no file is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

_MIN_BASE_BYTES = 1 << 20
"""Below this size deltas may exceed the base: a tiny base would be rewritten too often."""

_MAX_DELTAS = 500
"""The maximum length of a chain: all its sections are read when a bucket is read from disk."""

_MIN_REACH = 256
_MAX_REACH = 2048
"""For how many batches a chain may need a shared file. A large base is rewritten less often than a small one:
one batch for every so many bytes (``_BYTES_PER_BATCH``)."""
_BYTES_PER_BATCH = 1 << 11

_MIN_PINNED_BYTES = 64 << 20
"""Shared files of so many bytes may be kept for old chains, or of as many as the task has state."""
_LEAST_REACH = 16

_FORCED = 2
"""How many buckets a task rewrites at most in a batch that has not touched them, and how many others only for
the bytes that their old chains keep."""
_FORCED_BYTES = 8 << 20
"""The second of two such buckets is left to a later batch if they have more bytes than this together."""


class StateFile(NamedTuple):
    """A file of a chain."""

    name: str
    shared: bool
    """Whether it is a shared file, which has sections of several buckets. Other files are of one bucket."""


@dataclass
class StateHead:
    """The newest file of a bucket's state, and the sizes and batches of the files before it."""

    file: str
    base_batch: int
    base_bytes: int
    delta_bytes: int
    depth: int
    shared_since: int | None = None
    """The batch of the oldest shared file in the chain; None if none is shared, as in version 0.1.0."""
    shared_bytes: int = 0
    """The mean size of the shared files that tasks of this bucket have written lately."""

    @property
    def newest(self) -> StateFile:
        """The newest file. All deltas are shared, so the files of a chain are shared from one of them on."""
        return StateFile(self.file, self.shared_since is not None)

    @property
    def least_own_files(self) -> int:
        """How many files of the chain at least are not shared."""
        if self.shared_since is None:
            return self.depth + 1
        return 1 if self.base_batch < self.shared_since else 0


class RewritingRule:
    """Decides which of the buckets of a task get a new base in a batch.

    A short chain bounds what a reader reads, and a short reach bounds how many shared files are kept: one is
    removed when no chain needs it or an older one. ``heads`` are those of all buckets of the task.
    """

    def __init__(self, batch: int, heads: Iterable[StateHead | None]) -> None:
        self._batch = batch
        known = [head for head in heads if head is not None]
        held = sum(head.base_bytes + head.delta_bytes for head in known)
        # The name of a file begins with its batch.
        newest = max(known, key=lambda head: head.file, default=None)
        self.written = newest.shared_bytes if newest is not None else 0
        """The mean size of the shared files before this batch."""
        self._reach = max(_LEAST_REACH, max(held, _MIN_PINNED_BYTES) // max(self.written, 1))
        self._forced = 0

    def needs_base(self, bucket: int, head: StateHead | None) -> bool:
        """Return whether the next file of a bucket that the batch has changed must be a base; asked once."""
        if head is None:
            return True
        share = _share(bucket, head)
        if (
            head.delta_bytes > max(head.base_bytes, _MIN_BASE_BYTES) * share
            or head.depth >= _MAX_DELTAS * share
            or self._age(head) > _reach_by_size(head) * share
        ):
            return True
        # If the files become large at once, this applies to many buckets in the same batch.
        if self._forced < _FORCED and self._age(head) > self._reach * share:
            self._forced += 1
            return True
        return False

    def overdue(self, untouched: Mapping[int, StateHead | None]) -> list[int]:
        """Return the buckets to be rewritten even though the batch has not changed them: a few, the oldest.

        Their limit is twice that of other buckets, so that a bucket which is changed now and then is not
        rewritten between two changes.
        """
        found = [
            (-self._age(head), bucket, head.base_bytes + head.delta_bytes)
            for bucket, head in untouched.items()
            if head is not None
            and self._age(head) > 2 * min(_reach_by_size(head), self._reach) * _share(bucket, head)
        ]
        chosen: list[int] = []
        total = 0
        for _, bucket, size in sorted(found)[:_FORCED]:
            total += size
            if not chosen or total <= _FORCED_BYTES:
                chosen.append(bucket)
        return chosen

    def _age(self, head: StateHead) -> int:
        """Return for how many batches the chain has needed shared files."""
        return self._batch - head.shared_since if head.shared_since is not None else 0


def _reach_by_size(head: StateHead) -> int:
    """Return for how many batches a chain may need a shared file, as far as it depends on its size."""
    by_size = (head.base_bytes + head.delta_bytes) // _BYTES_PER_BATCH
    return min(max(by_size, _MIN_REACH), _MAX_REACH)


def mean_bytes(before: int, size: int) -> int:
    """Return the mean size of the last shared files, to which one is added.

    >>> mean_bytes(800, 1600)
    900
    """
    return (7 * before + size) // 8


def _share(bucket: int, head: StateHead) -> float:
    """Return which share of a limit applies to a bucket now, from 1 down to a half.

    Buckets which grow alike have different shares, and others with each base, so that they are not all
    rewritten in one batch.
    """
    return 1 - (bucket * 79 + head.base_batch * 31) % 128 / 256


def oldest_shared_batch(heads: Collection[StateHead], batch: int) -> int:
    """Return the batch of the oldest shared file that a chain needs; the one after ``batch`` if none does."""
    return min((head.shared_since for head in heads if head.shared_since is not None), default=batch + 1)
