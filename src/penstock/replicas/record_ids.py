"""Ids that make the records of several replicas comparable, and ``deduplicated``, which uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from penstock import setting_values
from penstock.errors import SettingError, shorten


class RecordIds:
    """Assigns ids to the records that one Spark task writes to a sink, in their order.

    An id consists of the batch, the record's origin within the batch (a part of the sources, or a bucket of
    keys), and its number there. Replicas run the same batches in the same order, so a record has the same id
    in all of them, and no other record of the sink has that id.

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
        """Continue with the records of another origin in the batch."""
        self._prefix = f"{self._batch:012d}-{origin}-"
        self._given = 0

    def next(self, count: int) -> list[str]:
        """Return the ids of the next ``count`` records."""
        first, self._given = self._given, self._given + count
        return [f"{self._prefix}{number:08d}" for number in range(first, self._given)]


def batch_of(record_id: str) -> int:
    """Return the batch in a record's id. Raises ValueError for an invalid id.

    >>> batch_of("000000000012-b3-00000000")
    12
    """
    batch, origin, number = record_id.split("-")
    if not (origin and len(number) >= 8 and number.isdecimal() and len(batch) >= 12):
        raise ValueError(record_id)
    return int(batch)


Item = TypeVar("Item")


def id_of(item: Any) -> str:
    """Return the id of a line printed by ``ConsoleSink``, of a tuple that begins with it, or of a dict.

    >>> id_of("000000000012-p0-00000003\\tada\\t1"), id_of(("000000000012-p0-00000003", "ada"))
    ('000000000012-p0-00000003', '000000000012-p0-00000003')
    """
    if isinstance(item, str):
        return item.rstrip("\n").partition("\t")[0]
    found = item["id"] if isinstance(item, Mapping) else item[0]
    return str(found)


def deduplicated(
    items: Iterable[Item], *, id: Callable[[Item], str] = id_of, horizon: int = 1000
) -> Iterator[Item]:
    """Yield each record delivered by replicas once: the first of those that have the same id.

    ``items`` are the records that all replicas have delivered to one sink, in any order; ``id`` returns the
    id of an item. Ids are remembered for the newest batch and the ``horizon`` batches before it. Items of
    older batches are dropped as duplicates, so no replica may be further behind another than that.

    >>> first, second = "000000000000-p0-00000000", "000000000001-p0-00000000"
    >>> list(deduplicated([(first, "a"), (first, "a"), (second, "b")]))
    [('000000000000-p0-00000000', 'a'), ('000000000001-p0-00000000', 'b')]
    """
    setting_values.check_whole_number("deduplicated", "horizon", horizon, least=0)
    setting_values.check_function("deduplicated", "id", id, optional=False)
    return _each_once(items, id, horizon)


def _each_once(items: Iterable[Item], id: Callable[[Item], str], horizon: int) -> Iterator[Item]:
    seen: dict[int, set[str]] = {}
    newest = -1
    for item in items:
        record_id, batch = _read(item, id)
        if batch > newest:
            newest = batch
            for old in [known for known in seen if known < newest - horizon]:
                del seen[old]
        if batch < newest - horizon:
            continue
        known_ids = seen.setdefault(batch, set())
        if record_id not in known_ids:
            known_ids.add(record_id)
            yield item


def _read(item: Item, id: Callable[[Item], str]) -> tuple[str, int]:
    try:
        record_id = id(item)
        return record_id, batch_of(record_id)
    except (ValueError, TypeError, LookupError, AttributeError):
        raise SettingError(
            f"deduplicated: there is no id of a record in {shorten(item)}: only jobs with replicas write ids;"
            " id= takes a function that returns the id of an item"
        ) from None
