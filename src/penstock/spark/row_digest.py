"""A number that stands for the rows that Spark writes itself, made while it writes them.

Replicas of a job compare it, as they compare digests of records that Python writes. It is a sum over the
rows, so it depends neither on their order nor on how they were divided among tasks.
"""

from __future__ import annotations

from typing import Any

_LOW = 0xFFFFFFFF


class RowDigest:
    """Watches one frame on its way into files."""

    def __init__(self) -> None:
        from pyspark.sql import Observation

        self._seen = Observation()

    def watching(self, frame: Any) -> Any:
        """Return the frame as it is, with an eye on its rows. It must be written once."""
        from pyspark.sql import functions

        columns = [_hashable(frame, field) for field in frame.schema.fields]
        row = functions.xxhash64(*columns)
        # Both halves of the hashes by themselves: Spark takes a sum that is too large for an error.
        low = functions.sum(row.bitwiseAND(functions.lit(_LOW)))
        high = functions.sum(functions.shiftrightunsigned(row, 32))
        return frame.observe(self._seen, low.alias("low"), high.alias("high"))

    def value(self) -> int:
        """Return the digest of the rows that were written."""
        seen = self._seen.get
        return int(((seen["high"] or 0) << 32) + (seen["low"] or 0))


def _hashable(frame: Any, field: Any) -> Any:
    """Return a column in a form that Spark can hash: maps and variants have none but their text."""
    column = frame[f"`{field.name}`"]
    text = field.dataType.simpleString()
    return column.cast("string") if "map<" in text or "variant" in text else column
