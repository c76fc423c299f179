"""Staged output of sinks.

Records are stored in sealed files until the driver delivers the batch; a mark records the delivery. Replicas
coordinate by locks, and old files of crashes are removed. A batch with missing files and without a mark is an
error, never taken for delivered.
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
"""The folder below Penstock's home for the staged records of sinks."""

DONE = ".done"
"""The suffix of a mark."""

ABANDONED = 30 * 24 * 3600.0
"""Seconds after which a staged file is considered left by a crash."""

_KEPT_MARKS = 1000
"""How many marks are kept. A job needs the mark of its last batch, a replica that is behind needs earlier
ones; a replica that is further behind copies a snapshot."""


def folder_of(job: str) -> str:
    """Return the name of a job's folder, quoted where necessary.

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
    """Creates the marks of delivered batches, and removes old marks and abandoned files."""

    def __init__(self) -> None:
        self._recent: dict[Path, deque[Path]] = {}
        """The existing marks by folder, oldest first."""
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
        while len(recent) > _KEPT_MARKS:
            recent.popleft().unlink(missing_ok=True)

    def tidy(self, folder: Path) -> None:
        """Remove old files left by crashes from a job's folder, once per process.

        Call this only when all sinks of the job have delivered their staged files: a job can be started again
        after a long time, and then an old file may still have to be delivered.
        """
        if folder in self._tidied:
            return
        limit = time.time() - ABANDONED
        for path in sorted(folder.rglob("*")):
            try:
                if path.suffix != DONE and path.is_file() and path.stat().st_mtime < limit:
                    path.unlink()
            except FileNotFoundError:
                continue  # its owner has removed it
        self._tidied.add(folder)

    def __reduce__(self) -> Any:
        # Only the driver makes marks: workers need no state.
        return DeliveryMarks, ()


def _marks_in(folder: Path) -> deque[Path]:
    """Return the marks in a folder, oldest first."""
    marks = []
    for path in folder.rglob(f"*{DONE}"):
        try:
            marks.append((path.stat().st_mtime, path))
        except FileNotFoundError:
            continue  # Another replica has removed it.
    return deque(path for _, path in sorted(marks))


def storable_records(records: Iterable[Record], reject: Reject) -> Iterator[Record]:
    """Yield the records that can be stored, and reject the others with the reason."""
    for record in records:
        try:
            record_codec.check(record)
        except UnstorableValueError as error:
            reject(record, str(error))
        else:
            yield record


_FILE_RECORDS = 100_000
"""How many records a file holds."""

_DELIVERY_TIMEOUT = 30.0
"""Seconds for which a process waits for another process that delivers the same batch."""

_POLL_INTERVAL = 0.01


class Staging:
    """A folder of sealed files: the ``folder`` option of a sink, by default ``staged`` in Penstock's home."""

    def __init__(self, sink: str, folder: str | Path | None) -> None:
        self._folder = None if folder is None else local_path(f"{sink}: folder", folder)
        self._marks = DeliveryMarks()

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        return self._folder or home() / STAGED

    @property
    def described(self) -> str | None:
        """The configured folder; None for the default, which moves with Penstock's home."""
        return None if self._folder is None else str(self._folder)

    def prepare(self, *, synced: bool = False) -> None:
        """Create the folder."""
        make_folder(self.folder)
        if synced:
            sync_with_parents(self.folder)

    def deliver_once(
        self,
        receipts: Sequence[Receipt],
        deliver: Callable[[Iterator[Record]], None],
        *,
        synced: bool = False,
        timeout: float = _DELIVERY_TIMEOUT,
    ) -> None:
        """Deliver the records of a batch unless they are already delivered, then remove them.

        Waits up to ``timeout`` seconds for another process that delivers the batch, then delivers it too.
        Raises FolderError when it is unknown whether the batch has been delivered.
        """
        batch = _Batch(self.paths(receipts), self.sibling(receipts, DONE), receipts[0].get("marked", False))
        with _delivery_lock(batch.paths[0], timeout):
            if not batch.is_delivered():
                try:
                    deliver(batch.records())
                except _DeliveredElsewhereError:
                    return  # the other process also removes the records
                self._marks.make(batch.mark, synced=synced)
            self.discard(receipts)
            if not batch.marked:
                batch.mark.unlink(missing_ok=True)

    def discard(self, receipts: Sequence[Receipt]) -> None:
        """Remove records that will not be delivered or have been delivered."""
        for path in self.paths(receipts):
            path.unlink(missing_ok=True)

    def tidy(self, job: str) -> None:
        """Remove old files left by crashes of a job."""
        self._marks.tidy(self.folder / folder_of(job))

    def sibling(self, receipts: Sequence[Receipt], suffix: str) -> Path:
        """Return the path of a batch's file with another suffix, beside its records."""
        return self.paths(receipts)[0].with_suffix(suffix)

    def paths(self, receipts: Sequence[Receipt]) -> list[Path]:
        """Return the files of a batch, in the order of its records."""
        return [self.folder / name for receipt in receipts for name in receipt["files"]]

    def __getstate__(self) -> dict[str, Any]:
        # Resolve the folder on the driver: a worker's environment may set another home.
        return {"_folder": self.folder, "_marks": self._marks}


class StagedSink(Sink):
    """A sink whose records are staged in sealed files until the driver delivers the batch."""

    transactional = True

    def __init__(self, sink: str, folder: str | Path | None) -> None:
        self._staging = Staging(sink, folder)

    def prepare(self) -> None:
        """Create the staging folder."""
        self._staging.prepare(synced=self.synced)

    def discard(self, receipts: Sequence[Receipt]) -> None:
        """Remove records that will not be delivered."""
        self._staging.discard(receipts)

    def tidy(self, job: str) -> None:
        """Remove old files left by crashes."""
        self._staging.tidy(job)


class BatchNumber(int):
    """The number of a batch, and an ``id`` that identifies its records.

    A number can be used again with other records: after a start from scratch, after a restore of older data,
    and when a job repeats a batch for other reasons. The id belongs to the staged records, and is repeated
    only together with the same records.
    """

    id: str

    def __new__(cls, number: int, receipts: Sequence[Receipt]) -> BatchNumber:
        """Derive the id from the receipts of a batch."""
        made = super().__new__(cls, number)
        first = receipts[0]
        made.id = f"{quote(first['job'])}/{quote(first['vertex'])}/{number}/{first['task'][:12]}"
        return made


class _DeliveredElsewhereError(Exception):
    """Another process has delivered the batch at the same time."""


@contextmanager
def _delivery_lock(path: Path, timeout: float) -> Iterator[None]:
    """Hold the delivery lock of a batch; continue without it after ``timeout`` seconds."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield  # The batch has been delivered and removed.
        return
    try:
        deadline = time.monotonic() + timeout
        while not try_lock(descriptor) and time.monotonic() < deadline:
            time.sleep(_POLL_INTERVAL)
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class _Batch:
    """The files of a batch and its delivery mark."""

    paths: list[Path]
    mark: Path
    marked: bool
    """Whether the mark is kept. Version 0.1.0 removed it after the files: no files meant delivered."""

    def is_delivered(self) -> bool:
        """Return whether the batch is delivered; raise FolderError if it is not and files are missing."""
        if self.mark.exists():
            return True
        missing = [path for path in self.paths if not path.exists()]
        if not missing or self.mark.exists():  # It may have been delivered since the first check.
            return bool(missing)
        if self.marked or len(missing) < len(self.paths):
            raise lost_file_error(missing[0], self.mark)
        return True

    def records(self) -> Iterator[Record]:
        """Yield the records; raise _DeliveredElsewhereError if another process delivers them meanwhile."""
        for path in self.paths:
            try:
                yield from staged_records(path)
            except FileNotFoundError:
                if self.is_delivered():
                    raise _DeliveredElsewhereError from None
                raise


def staged_records(path: Path) -> Iterator[Record]:
    """Yield the records of one file, after verifying it completely."""
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
    """Stages the records of one Spark task in sealed files, listed in the receipt."""

    def __init__(self, folder: Path, context: WriteContext, *, synced: bool = False) -> None:
        self._folder = folder
        self._context = context
        self._synced = synced
        # Not the task's id: a job may have two such sinks, and a Spark task may write to both.
        self._name = f"{folder_of(context.job)}/{context.batch:012d}-{uuid4().hex}"
        self._waiting: list[Record] = []
        self._files: list[str] = []

    def write(self, records: list[Record]) -> None:
        """Buffer records, and write a file when the buffer is full."""
        self._waiting.extend(records)
        if len(self._waiting) >= _FILE_RECORDS:
            self._seal()

    def finish(self) -> Receipt | None:
        """Return the receipt: the files, and the job, vertex and task that they belong to."""
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
