"""The slot table: which keyed task of a batch processes which buckets.

A job has many buckets, whose number is fixed, and few slots, each of which is one Spark task after the
shuffle. Results do not depend on the table, so load is moved by using another table from the next batch on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.local_files import write_private


@dataclass(frozen=True)
class SlotTable:
    """The slot of each bucket. A slot may have no buckets.

    >>> SlotTable.even(buckets=5, slots=2).slot_of
    (0, 1, 0, 1, 0)
    >>> dict(SlotTable(3, (2, 0, 2)).assignments())
    {0: (1,), 2: (0, 2)}
    """

    slots: int
    slot_of: tuple[int, ...]

    @classmethod
    def even(cls, buckets: int, slots: int) -> SlotTable:
        """Return the table of a job whose load is not known: buckets in turn."""
        return cls(slots, tuple(bucket % slots for bucket in range(buckets)))

    @classmethod
    def planned(cls, given: Any, buckets: int, slots: int) -> SlotTable:
        """Return the table in the offset of a batch; the even one if there is none that fits.

        A batch that is repeated after a restart may have been planned for another number of slots.

        >>> SlotTable.planned([1, 1, 0], buckets=3, slots=2).slot_of
        (1, 1, 0)
        >>> SlotTable.planned([1, 7, 0], buckets=3, slots=2) == SlotTable.planned(None, buckets=3, slots=2)
        True
        """
        if _fits(given, buckets, slots):
            return cls(slots, tuple(given))
        return cls.even(buckets, slots)

    @classmethod
    def read(cls, path: Path, buckets: int, slots: int) -> SlotTable:
        """Return the table in a file; the even one if there is none that fits the job."""
        try:
            given = json.loads(path.read_text())
        except (FileNotFoundError, ValueError):
            given = None
        return cls.planned(given, buckets, slots)

    def write(self, path: Path) -> None:
        """Write the table to a file, from which the next batch is planned."""
        write_private(path, json.dumps(self.slot_of))

    @property
    def is_even(self) -> bool:
        """Whether this is the table of a job whose load is not known."""
        return self == self.even(len(self.slot_of), self.slots)

    @property
    def filled(self) -> list[int]:
        """The slots that have buckets.

        >>> SlotTable(3, (2, 0, 2)).filled
        [0, 2]
        """
        return sorted(set(self.slot_of))

    def assignments(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield each slot that has buckets, with these in ascending order."""
        found: dict[int, list[int]] = {}
        for bucket, slot in enumerate(self.slot_of):
            found.setdefault(slot, []).append(bucket)
        for slot, buckets in sorted(found.items()):
            yield slot, tuple(buckets)


def _fits(given: Any, buckets: int, slots: int) -> bool:
    return (
        isinstance(given, list)
        and len(given) == buckets
        and all(isinstance(slot, int) and 0 <= slot < slots for slot in given)
    )
