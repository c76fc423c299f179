"""Ids that make the records of several replicas comparable, and ``deduplicated``, which uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from penstock import setting_values
from penstock.errors import SettingError, shorten


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


Item = TypeVar("Item")


def id_of(item: Any) -> str:
    """Return the id of a line that ``ConsoleSink`` has printed, of a tuple that begins with it, or of a dict.

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
    """Give what replicas have delivered, each record once: the first of those that have the same id.

    ``items`` is what all replicas have delivered to one sink, in any order, as it comes; ``id`` returns the
    id of one. Ids are remembered for the newest batch and the ``horizon`` batches before it. What comes from
    an older batch counts as seen: no replica may be further behind another than that.

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
            f"deduplicated: there is no id of a record in {shorten(item)}: a job gives ids where it has"
            " replicas; id= takes a function that finds it"
        ) from None
