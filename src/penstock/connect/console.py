"""Records printed on the driver's standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TextIO

from penstock.connect.memory import CollectingWriter
from penstock.graph.ends import Receipt, Sink, SinkWriter, WriteContext


class ConsoleSink(Sink):
    """Prints each record as ``key<TAB>value``, or the value alone where there is no key."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def writer(self, context: WriteContext) -> SinkWriter:  # noqa: ARG002
        """Collect on the worker."""
        return CollectingWriter()

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:  # noqa: ARG002
        """Print a batch in one write, so that batches of several sinks do not mix line by line."""
        lines = [
            f"{record.value}\n" if record.key is None else f"{record.key}\t{record.value}\n"
            for records in receipts
            for record in records
        ]
        stream = self._stream or sys.stdout
        stream.write("".join(lines))
        stream.flush()

    def __getstate__(self) -> dict[str, Any]:
        return {"_stream": None}
