"""Records printed on the driver's standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TextIO

from penstock.connect.memory import Collected, CollectingWriter
from penstock.graph.ends import Receipt, Sink, SinkWriter, WriteContext


class ConsoleSink(Sink):
    """Prints each record as ``key<TAB>value``, or the value alone where there is no key.

    Of a job with replicas each prints all records, behind an id by which :func:`penstock.deduplicated` tells
    them: ``id<TAB>key<TAB>value``.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def writer(self, context: WriteContext) -> SinkWriter:
        """Collect on the worker."""
        return CollectingWriter(context.ids)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:  # noqa: ARG002
        """Print a batch in one write, so that batches of several sinks do not mix line by line."""
        lines = [
            f"{begin}{value}\n" if key is None else f"{begin}{key}\t{value}\n"
            for collected in receipts
            for begin, (key, value, _) in zip(_beginnings(collected), collected.records, strict=True)
        ]
        stream = self._stream or sys.stdout
        stream.write("".join(lines))
        stream.flush()

    def __getstate__(self) -> dict[str, Any]:
        return {"_stream": None}


def _beginnings(collected: Collected) -> list[str]:
    """Return what each line begins with."""
    return [f"{record_id}\t" for record_id in collected.ids] or [""] * len(collected.records)
