"""Which records have a form in a log segment, for sinks that write segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.errors import UnstorableValueError
from penstock.graph.ends import Reject
from penstock.log import codec
from penstock.record import Record


def storable_records(records: Iterable[Record], reject: Reject) -> Iterator[Record]:
    """Return the records that can be stored, and reject the others with the reason."""
    for record in records:
        try:
            codec.check(record)
        except UnstorableValueError as error:
            reject(record, str(error))
        else:
            yield record
