"""Whether the segments of a partition follow each other without a gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.log.segment import SegmentDamageError, read_header


class Counts:
    """How many records are in segments, each looked at once."""

    def __init__(self) -> None:
        self._known: dict[str, int | None] = {}

    def of(self, file: Path) -> int | None:
        """Return the number of records in a segment; None when its header is damaged."""
        name = file.name
        if name not in self._known:
            try:
                self._known[name] = read_header(file)[0].count
            except SegmentDamageError:
                # Damage is for who reads it to tell: a copy of it is no worse.
                self._known[name] = None
        return self._known[name]

    def keep_only(self, names: set[str]) -> None:
        """Forget all others."""
        self._known = {name: count for name, count in self._known.items() if name in names}


def gapless(starts: Sequence[int], counts: Mapping[int, int | None]) -> list[int] | None:
    """Return the segments that make up a partition, by where they begin; None when some are missing.

    Those whose records an earlier, longer one has are left out: compaction is about to take them away.

    >>> gapless([5, 8, 10], {5: 3, 8: 2, 10: 1}), gapless([5, 8, 10], {5: 5, 8: 2, 10: 1})
    ([5, 8, 10], [5, 10])
    >>> gapless([5, 10], {5: 3, 10: 1}) is None
    True
    """
    kept: list[int] = []
    reach: int | None = None
    """Where the next one must begin; None where that is not known."""
    for start in starts:
        count = counts[start]
        if reach is not None and count is not None and start < reach and start + count <= reach:
            continue
        if reach is not None and start != reach:
            return None
        kept.append(start)
        reach = start + count if count is not None else None
    return kept
