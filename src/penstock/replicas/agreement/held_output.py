"""Output that a standby replica holds on its node until it is published or dropped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.connect.sink_staging import StagingWriter, staged_records
from penstock.graph.connector_api import Receipt, Sink, SinkWriter, WriteContext

_HELD = "held"


class HeldSink(Sink):
    """Stands for a holdable sink on the workers of a backup: writes files of the node's own instead.

    As long as the file ``primary`` exists the replica is the primary, and writes to the sink itself.
    """

    transactional = True

    def __init__(self, sink: Sink, folder: Path, primary: Path) -> None:
        self._sink = sink
        self._folder = folder
        self._primary = primary

    def writer(self, context: WriteContext) -> SinkWriter:
        """Open a writer of the sink itself, or of what is held."""
        if self._primary.exists():
            return self._sink.writer(context)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _HeldWriter(self._folder, context)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        """Never called: drivers have the sink itself."""
        raise NotImplementedError("a held sink commits nothing")


class _HeldWriter(StagingWriter):
    """Says of its files that they are held."""

    def finish(self) -> Receipt | None:
        """Name the files as held."""
        receipt = super().finish()
        return None if receipt is None else {**receipt, _HELD: True}


def is_held(receipt: Receipt) -> bool:
    """Whether a receipt is of what is held."""
    return isinstance(receipt, dict) and bool(receipt.get(_HELD))


def release(sink: Sink, receipt: Receipt, folder: Path, batch: int) -> list[Receipt]:
    """Write what was held to its sink after all; return the receipts of that."""
    context = WriteContext(receipt["job"], receipt["vertex"], batch, receipt["task"])
    writer = sink.writer(context)
    for name in receipt["files"]:
        writer.write(list(staged_records(folder / name)))
    made = writer.finish()
    return [] if made is None else [made]


def drop(receipt: Receipt, folder: Path) -> None:
    """Remove what was held and is not needed."""
    for name in receipt["files"]:
        (folder / name).unlink(missing_ok=True)
