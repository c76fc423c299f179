"""Ids by which a reader can tell the records of several replicas from each other, and equal ones as one."""

from __future__ import annotations


class RecordIds:
    """Gives ids to the records that one Spark task has for a sink, in their order.

    An id is made of the batch, of where in the batch the record comes from (a part of the sources, or a
    bucket of keys), and of its number there. Replicas run the same batches in the same order, so a record has
    the same id in all of them, and no other record of the sink has it.

    >>> ids = RecordIds(12, "p0")
    >>> ids.next(2)
    ['000000000012-p0-00000000', '000000000012-p0-00000001']
    >>> ids.begin("b3")
    >>> ids.next(1)
    ['000000000012-b3-00000000']
    """

    def __init__(self, batch: int, origin: str) -> None:
        self._batch = batch
        self._prefix = ""
        self._given = 0
        self.begin(origin)

    def begin(self, origin: str) -> None:
        """Go on with records that come from elsewhere in the batch."""
        self._prefix = f"{self._batch:012d}-{origin}-"
        self._given = 0

    def next(self, count: int) -> list[str]:
        """Return the ids of the next records."""
        first, self._given = self._given, self._given + count
        return [f"{self._prefix}{number:08d}" for number in range(first, self._given)]


def batch_of(record_id: str) -> int:
    """Return the batch of a record by its id; raises ValueError for what is no id.

    >>> batch_of("000000000012-b3-00000000")
    12
    """
    batch, origin, number = record_id.split("-")
    if not (origin and len(number) >= 8 and number.isdecimal() and len(batch) >= 12):
        raise ValueError(record_id)
    return int(batch)
