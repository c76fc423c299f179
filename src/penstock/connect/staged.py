"""Records that wait in sealed files until the driver has handed them to somebody else's hands.

A receipt names the files, so that a call which a crash interrupted is repeated with the same records. When
the call has succeeded a mark is made, then the files are removed, then the mark: at each moment it can be
told whether the batch still has to be handed over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.connect.storable import storable
from penstock.errors import FolderError, UnstorableValueError
from penstock.graph.ends import Receipt, SinkWriter, WriteContext
from penstock.log import home
from penstock.log.description import make_folder
from penstock.log.segment import DamageError, load, seal
from penstock.log.staging import write
from penstock.record import Record

_SEGMENT = 100_000
"""How many records a file holds."""

_ABANDONED = 30 * 24 * 3600.0
"""Seconds after which a file that no batch has named is the leftover of a crash."""


class Staging:
    """A folder of sealed files, ``staged`` below Penstock's home by default."""

    def __init__(self, folder: str | Path | None) -> None:
        self._folder = None if folder is None else Path(folder).absolute()

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self._folder or home() / "staged"

    def prepare(self, now: float | None = None) -> None:
        """Make the folder, and remove what crashes have left in it long ago."""
        make_folder(self.folder)
        limit = (time.time() if now is None else now) - _ABANDONED
        for path in sorted(self.folder.iterdir()):
            try:
                if path.suffix in (".seg", ".done") and path.stat().st_mtime < limit:
                    path.unlink()
            except FileNotFoundError:
                continue  # its owner was faster

    def once(self, receipts: Sequence[Receipt], hand_over: Callable[[Iterator[Record]], None]) -> None:
        """Hand the records of a batch over, unless that has been done; then remove them."""
        paths = [self.folder / name for receipt in receipts for name in receipt["files"]]
        mark = self.folder / f"{paths[0].stem}.done"
        present = [path for path in paths if path.exists()]
        if present and not mark.exists():
            if len(present) < len(paths):
                lost = next(path for path in paths if path not in present)
                raise FolderError(
                    f"{lost} is gone, and with it records that no sink has got yet: put it back"
                )
            hand_over(staged_records(paths))
            os.close(os.open(mark, os.O_CREAT | os.O_CLOEXEC, 0o600))
        for path in (*paths, mark):
            path.unlink(missing_ok=True)

    def __getstate__(self) -> dict[str, Any]:
        # A worker's environment need not be the driver's: where the files are is settled here.
        return {"_folder": self.folder}


def staged_records(paths: Sequence[Path]) -> Iterator[Record]:
    """Read the records of such files, in order."""
    for path in paths:
        try:
            segment = load(path)
        except DamageError as error:
            raise FolderError(f"{path} is damaged: {error}") from error
        for chunk in segment.records():
            yield from chunk


class StagingWriter(SinkWriter):
    """Seals the records of one Spark task in files that the receipt names."""

    def __init__(self, folder: Path, context: WriteContext) -> None:
        self._folder = folder
        self._context = context
        # Not the task: a job may have two such sinks, and a Spark task may write to both.
        self._name = f"{context.batch:012d}-{uuid4().hex}"
        self._waiting: list[Record] = []
        self._files: list[str] = []

    def write(self, records: list[Record]) -> None:
        """Keep records, and write a file when there are many."""
        self._waiting.extend(records)
        if len(self._waiting) >= _SEGMENT:
            self._seal()

    def finish(self) -> Receipt | None:
        """Name the files, and for whom they were written."""
        self._seal()
        if not self._files:
            return None
        context = self._context
        return {"job": context.job, "vertex": context.vertex, "task": context.task, "files": self._files}

    def _seal(self) -> None:
        records, self._waiting = self._waiting, []
        try:
            sealed = seal(os.urandom(16), records) if records else None
        except UnstorableValueError:
            if self._context.reject is None:
                raise
            records = list(storable(records, self._context.reject))
            sealed = seal(os.urandom(16), records) if records else None
        if sealed is not None:
            name = f"{self._name}-{len(self._files):04d}.seg"
            write(self._folder / name, sealed, sync=False)
            self._files.append(name)
