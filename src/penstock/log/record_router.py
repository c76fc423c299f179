"""Choose the partition of each record."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from penstock.errors import LogError
from penstock.key_hash import UnequalKeyError, key_hash
from penstock.log import tagged_json
from penstock.record import Record


def check_records(records: Sequence[Record]) -> None:
    """Raise ``LogError`` if any item is not a ``Record``."""
    for kind in set(map(type, records)):
        if kind is not Record:
            raise LogError(
                f"a log takes Records, not {kind.__name__}: use Record(key, value) or as_record(item)"
            )


class Router:
    """Assigns records to partitions: by key hash, and those without a key round-robin from call to call.

    >>> router = Router(2)
    >>> [sorted(router.route([Record(None, word)])) for word in ("a", "b", "c")]
    [[0], [1], [0]]
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._turns = count()

    def route(self, records: Sequence[Record]) -> dict[int, Sequence[Record]]:
        """Return the records of each partition that gets any, in order of partition numbers."""
        if self._partitions == 1:
            return {0: records}
        routed: dict[int, list[Record]] = {}
        turn: int | None = None
        for record in records:
            key = record.key
            if key is None:
                if turn is None:
                    turn = next(self._turns) % self._partitions
                target = turn
            else:
                if type(key) is not str:
                    tagged_json.dumps(key)  # raises for a key that cannot be stored
                target = partition_of(key, self._partitions)
            routed.setdefault(target, []).append(record)
        return {target: routed[target] for target in sorted(routed)}


def partition_of(key: Any, partitions: int) -> int:
    """Return the partition of a key; 0 for a key that is not equal to itself, such as NaN.

    >>> partition_of("a", 4) == partition_of("a", 4), partition_of(float("nan"), 4)
    (True, 0)
    """
    try:
        return key_hash(key) % partitions
    except UnequalKeyError:
        return 0
