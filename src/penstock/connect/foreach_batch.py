"""A function that is called with each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.connect import checking
from penstock.connect.staged import BatchNumber, Staging, StagingWriter
from penstock.graph.ends import Receipt, Sink, SinkWriter, WriteContext
from penstock.record import Record


class ForeachBatchSink(Sink):
    """Calls ``function(batch, records)`` on the driver, once for each batch that has records.

    The records wait in files below ``folder`` until the function has returned. A crash before that repeats
    the call, with the same ``batch.id`` and the same records: a function that does nothing for an id that it
    has seen makes it exactly once. The number itself, which ``batch`` is, comes again with other records when
    a job starts from scratch or from older data. What the function raises ends the job, and the next run
    begins with that call.
    """

    transactional = True

    def __init__(
        self, function: Callable[[BatchNumber, list[Record]], Any], *, folder: str | Path | None = None
    ) -> None:
        checking.check_function("ForeachBatchSink", "function", function, optional=False)
        self.function: Callable[[BatchNumber, list[Record]], Any] | None = function
        self._staging = Staging("ForeachBatchSink", folder)

    def prepare(self) -> None:
        """Make the folder in which records wait."""
        self._staging.prepare(synced=self.synced)

    def writer(self, context: WriteContext) -> SinkWriter:
        """Write what the function will be called with."""
        return StagingWriter(self._staging.folder, context, synced=self.synced)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        """Call the function, unless it has been called and has returned."""
        function = self.function
        assert function is not None, "only the driver's own sink has the function"
        number = BatchNumber(batch, receipts)
        self._staging.deliver_once(
            receipts, lambda records: function(number, list(records)), synced=self.synced
        )

    def discard(self, receipts: Sequence[Receipt]) -> None:
        """Remove what the function will not be called with."""
        self._staging.discard(receipts)

    def tidy(self, job: str) -> None:
        """Remove what crashes have left long ago."""
        self._staging.tidy(job)

    def describe(self) -> dict[str, Any]:
        """Return where records wait."""
        return {"folder": self._staging.described}

    def __getstate__(self) -> dict[str, Any]:
        # Workers never call it, and what it holds, such as a connection, may not be able to travel.
        return {**self.__dict__, "function": None}
