"""Output that a standby replica holds on its node until it is published or dropped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.connect.sink_staging import StagingWriter, staged_records
from penstock.graph.connector_api import Receipt, Sink, SinkWriter, WriteContext

_HELD = "held"


class HeldSink(Sink):
    """Replaces a sink in a backup replica: writes the output to files on the node.

    While the file ``primary`` exists, the replica is the primary and writes to the sink itself.
    """

    transactional = True

    def __init__(self, sink: Sink, folder: Path, primary: Path) -> None:
        self._sink = sink
        self._folder = folder
        self._primary = primary

    def writer(self, context: WriteContext) -> SinkWriter:
        """Open a writer of the sink itself, or of held output."""
        if self._primary.exists():
            return self._sink.writer(context)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _HeldWriter(self._folder, context)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        """Never called: drivers use the sink itself."""
        raise NotImplementedError("a held sink commits nothing")


class _HeldWriter(StagingWriter):
    """Marks its files as held."""

    def finish(self) -> Receipt | None:
        """Return a receipt that marks the files as held."""
        receipt = super().finish()
        return None if receipt is None else {**receipt, _HELD: True}


def is_held(receipt: Receipt) -> bool:
    """Return whether a receipt is of held output."""
    return isinstance(receipt, dict) and bool(receipt.get(_HELD))


def release(sink: Sink, receipt: Receipt, folder: Path, batch: int) -> list[Receipt]:
    """Write held output to its sink; return the receipts of the sink."""
    context = WriteContext(receipt["job"], receipt["vertex"], batch, receipt["task"])
    writer = sink.writer(context)
    for name in receipt["files"]:
        writer.write(list(staged_records(folder / name)))
    released = writer.finish()
    return [] if released is None else [released]


def drop(receipt: Receipt, folder: Path) -> None:
    """Remove held output."""
    for name in receipt["files"]:
        (folder / name).unlink(missing_ok=True)
