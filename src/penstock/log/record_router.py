"""Which partition a record goes to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from penstock.errors import LogError
from penstock.key_hash import UnequalKeyError, key_hash
from penstock.log import tagged_json
from penstock.record import Record


def check_records(records: Sequence[Record]) -> None:
    """Refuse anything that is not a record."""
    for kind in set(map(type, records)):
        if kind is not Record:
            raise LogError(
                f"a log takes Records, not {kind.__name__}: use Record(key, value) or as_record(item)"
            )


class Router:
    """Spreads records over partitions: by key, and those without a key in turn, one partition a call.

    >>> router = Router(2)
    >>> [sorted(router.route([Record(None, word)])) for word in ("a", "b", "c")]
    [[0], [1], [0]]
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._turns = count()

    def route(self, records: Sequence[Record]) -> dict[int, Sequence[Record]]:
        """The records of each partition that gets any, in their order, by rising partition."""
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
                    tagged_json.dumps(key)  # a key that cannot be stored has no hash either
                target = partition_of(key, self._partitions)
            routed.setdefault(target, []).append(record)
        return {target: routed[target] for target in sorted(routed)}


def partition_of(key: Any, partitions: int) -> int:
    """Return the partition of a key. What is equal to nothing, such as NaN, need not be with anything.

    >>> partition_of("a", 4) == partition_of("a", 4), partition_of(float("nan"), 4)
    (True, 0)
    """
    try:
        return key_hash(key) % partitions
    except UnequalKeyError:
        return 0
