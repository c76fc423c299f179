"""What several replicas have delivered, each record once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from penstock.connect import checking
from penstock.errors import SettingError, shorten
from penstock.graph.record_ids import batch_of

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
    checking.check_whole_number("deduplicated", "horizon", horizon, least=0)
    checking.check_function("deduplicated", "id", id, optional=False)
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
