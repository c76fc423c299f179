"""Staged output of sinks.

Sealed files that wait until the driver delivers a batch, marks of delivered batches, locks between
replicas, and the removal of leftovers. A batch whose files are gone and that has no mark is an error, never
taken for delivered.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from penstock.errors import FolderError, UnstorableValueError
from penstock.graph.connector_api import Receipt, Reject, Sink, SinkWriter, WriteContext
from penstock.local_files import local_path, make_folder, sync, sync_with_parents, try_lock
from penstock.log import home, record_codec
from penstock.log.segment import SegmentDamageError, load, seal
from penstock.log.segment_staging import write
from penstock.record import Record

STAGED = "staged"
"""Where, below Penstock's home, records wait for sinks that have no place for them."""

DONE = ".done"
"""The ending of a mark."""

ABANDONED = 30 * 24 * 3600.0
"""Seconds after which a staged file is the leftover of a crash."""

_KEPT = 1000
"""How many marks stay. A job asks for that of its last batch, a replica that is behind for earlier ones; one
that is further behind copies a snapshot."""


def folder_of(job: str) -> str:
    """Return the name of a job's folder among those of other jobs.

    >>> folder_of("my job"), folder_of("..")
    ('my%20job', '%2E%2E')
    """
    quoted = quote(job, safe="")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


def lost_file_error(path: Path, mark: Path) -> FolderError:
    """Return the error for a staged file that is missing and not marked as delivered."""
    return FolderError(
        f"{path} is missing, and its records may not have been delivered: restore the file. If the records "
        f"were delivered, create the empty file {mark} and start the job again"
    )


class DeliveryMarks:
    """Writes the marks of delivered batches, and removes old marks and leftovers."""

    def __init__(self) -> None:
        self._recent: dict[Path, deque[Path]] = {}
        """By folder, the marks that are there, the oldest first."""
        self._tidied: set[Path] = set()

    def make(self, mark: Path, *, synced: bool = False) -> None:
        """Mark a batch as delivered, and remove marks of old batches."""
        recent = self._recent.get(mark.parent)
        if recent is None:
            recent = self._recent[mark.parent] = _marks_in(mark.parent)
        os.close(os.open(mark, os.O_CREAT | os.O_CLOEXEC, 0o600))
        if synced:
            sync(mark.parent)
        if mark not in recent:
            recent.append(mark)
        while len(recent) > _KEPT:
            recent.popleft().unlink(missing_ok=True)

    def tidy(self, folder: Path) -> None:
        """Remove old leftovers of crashes from a job's folder, once in each process.

        Only when all sinks of the job have got what is theirs: a file may be old and wait for another sink,
        since a job can be started again after any time.
        """
        if folder in self._tidied:
            return
        limit = time.time() - ABANDONED
        for path in sorted(folder.rglob("*")):
            try:
                if path.suffix != DONE and path.is_file() and path.stat().st_mtime < limit:
                    path.unlink()
            except FileNotFoundError:
                continue  # its owner was faster
        self._tidied.add(folder)

    def __reduce__(self) -> Any:
        # Only a driver makes marks.
        return DeliveryMarks, ()


def _marks_in(folder: Path) -> deque[Path]:
    """Return the marks in a folder, the oldest first."""
    marks = []
    for path in folder.rglob(f"*{DONE}"):
        try:
            marks.append((path.stat().st_mtime, path))
        except FileNotFoundError:
            continue  # Another replica has removed it.
    return deque(path for _, path in sorted(marks))


def storable_records(records: Iterable[Record], reject: Reject) -> Iterator[Record]:
    """Return the records that can be stored, and reject the others with the reason."""
    for record in records:
        try:
            record_codec.check(record)
        except UnstorableValueError as error:
            reject(record, str(error))
        else:
            yield record


_SEGMENT = 100_000
"""How many records a file holds."""

_PATIENCE = 30.0
"""Seconds for which a process waits for another that hands the same batch over."""

_PAUSE = 0.01


class Staging:
    """A folder of sealed files, an option of a ``sink``: ``staged`` below Penstock's home by default."""

    def __init__(self, sink: str, folder: str | Path | None) -> None:
        self._folder = None if folder is None else local_path(f"{sink}: folder", folder)
        self._marks = DeliveryMarks()

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self._folder or home() / STAGED

    @property
    def described(self) -> str | None:
        """Which folder was asked for; None for the one below Penstock's home, which may move with that."""
        return None if self._folder is None else str(self._folder)

    def prepare(self, *, synced: bool = False) -> None:
        """Make the folder."""
        make_folder(self.folder)
        if synced:
            sync_with_parents(self.folder)

    def deliver_once(
        self,
        receipts: Sequence[Receipt],
        hand_over: Callable[[Iterator[Record]], None],
        *,
        synced: bool = False,
        patience: float = _PATIENCE,
    ) -> None:
        """Deliver the records of a batch, unless that has been done; then remove them.

        While another process does it, this one waits, and after ``patience`` seconds does it too. Raises
        FolderError when it is not known whether it has been done.
        """
        batch = _Batch(self.paths(receipts), self.beside(receipts, DONE), receipts[0].get("marked", False))
        with _turn(batch.paths[0], patience):
            if not batch.is_handed_over():
                try:
                    hand_over(batch.records())
                except _TakenError:
                    return  # by another process, meanwhile: it removes them too
                self._marks.make(batch.mark, synced=synced)
            self.discard(receipts)
            if not batch.marked:
                batch.mark.unlink(missing_ok=True)

    def discard(self, receipts: Sequence[Receipt]) -> None:
        """Remove records that will not be delivered, or have been."""
        for path in self.paths(receipts):
            path.unlink(missing_ok=True)

    def tidy(self, job: str) -> None:
        """Remove what crashes of a job have left long ago."""
        self._marks.tidy(self.folder / folder_of(job))

    def beside(self, receipts: Sequence[Receipt], suffix: str) -> Path:
        """Return a file that belongs to a batch."""
        return self.paths(receipts)[0].with_suffix(suffix)

    def paths(self, receipts: Sequence[Receipt]) -> list[Path]:
        """Return the files of a batch, in the order of its records."""
        return [self.folder / name for receipt in receipts for name in receipt["files"]]

    def __getstate__(self) -> dict[str, Any]:
        # A worker's environment need not be the driver's: where the files are is settled here.
        return {"_folder": self.folder, "_marks": self._marks}


class StagedSink(Sink):
    """A sink whose records wait in sealed files until the driver delivers the batch."""

    transactional = True

    def __init__(self, sink: str, folder: str | Path | None) -> None:
        self._staging = Staging(sink, folder)

    def prepare(self) -> None:
        """Make the folder in which records wait."""
        self._staging.prepare(synced=self.synced)

    def discard(self, receipts: Sequence[Receipt]) -> None:
        """Remove records that will not be delivered."""
        self._staging.discard(receipts)

    def tidy(self, job: str) -> None:
        """Remove what crashes have left long ago."""
        self._staging.tidy(job)


class BatchNumber(int):
    """The number of a batch, and an ``id`` by which its content is known again.

    A number can come again with other records: after a start from scratch, after a restore of older data,
    and where a job may repeat a batch otherwise. The id is of the records as they were staged, and comes
    again with these only.
    """

    id: str

    def __new__(cls, number: int, receipts: Sequence[Receipt]) -> BatchNumber:
        """Name what the receipts of a batch stand for."""
        made = super().__new__(cls, number)
        first = receipts[0]
        made.id = f"{quote(first['job'])}/{quote(first['vertex'])}/{number}/{first['task'][:12]}"
        return made


class _TakenError(Exception):
    """Another process has delivered the batch at the same time."""


@contextmanager
def _turn(path: Path, patience: float) -> Iterator[None]:
    """Hold the delivery lock of a file, for as long as others wait for it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield  # There is nothing left to hand over.
        return
    try:
        deadline = time.monotonic() + patience
        while not try_lock(descriptor) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class _Batch:
    """The files of a batch, and what is made when it has been handed over."""

    paths: list[Path]
    mark: Path
    marked: bool
    """Whether the mark stays. Version 0.1.0 removed it after the files: nothing left meant handed over."""

    def is_handed_over(self) -> bool:
        """Whether it has been; raises FolderError when it has not and files of it are lost."""
        if self.mark.exists():
            return True
        gone = [path for path in self.paths if not path.exists()]
        if not gone or self.mark.exists():  # It may have been handed over between the two looks.
            return bool(gone)
        if self.marked or len(gone) < len(self.paths):
            raise lost_file_error(gone[0], self.mark)
        return True

    def records(self) -> Iterator[Record]:
        """Return the records; raises _TakenError when another process removes them meanwhile."""
        for path in self.paths:
            try:
                yield from staged_records(path)
            except FileNotFoundError:
                if self.is_handed_over():
                    raise _TakenError from None
                raise


def staged_records(path: Path) -> Iterator[Record]:
    """Return the records of one file, after all of it has been verified."""
    try:
        segment = load(path)
    except SegmentDamageError as error:
        raise FolderError(
            f"{path} is damaged: {error}. Restore it from a copy, or start from scratch with fresh=True "
            "(--fresh)"
        ) from error
    for chunk in segment.records():
        yield from chunk


class StagingWriter(SinkWriter):
    """Seals the records of one Spark task in files that the receipt names."""

    def __init__(self, folder: Path, context: WriteContext, *, synced: bool = False) -> None:
        self._folder = folder
        self._context = context
        self._synced = synced
        # Not the task: a job may have two such sinks, and a Spark task may write to both.
        self._name = f"{folder_of(context.job)}/{context.batch:012d}-{uuid4().hex}"
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
        if self._synced:
            job = self._folder / folder_of(self._context.job)
            for folder in (job, job.parent):
                sync(folder)
        context = self._context
        return {
            "job": context.job,
            "vertex": context.vertex,
            "task": context.task,
            "files": self._files,
            "marked": True,
        }

    def _seal(self) -> None:
        records, self._waiting = self._waiting, []
        try:
            sealed = seal(os.urandom(16), records) if records else None
        except UnstorableValueError:
            if self._context.reject is None:
                raise
            records = list(storable_records(records, self._context.reject))
            sealed = seal(os.urandom(16), records) if records else None
        if sealed is not None:
            name = f"{self._name}-{len(self._files):04d}.seg"
            path = self._folder / name
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write(path, sealed, sync=self._synced)
            self._files.append(name)
