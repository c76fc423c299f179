"""The ledger: the committed batches of a job, and what belongs to each.

An entry is created atomically and only once, so its positions, state, feedback and receipts become valid
together. Later steps, such as publishing, can be repeated. An at-most-once job also writes an intent before
each batch: an intent without an entry is an interrupted batch, which is skipped. Files that no entry names
are leftovers of failed attempts and are removed here.
"""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from penstock.engine.storage.job_folder import JobFolders
from penstock.engine.storage.state_chain import StateHead
from penstock.errors import JobFailedError, SupersededError
from penstock.key_hash import VERSION as KEYS_VERSION
from penstock.local_files import sync, write_private

FORMAT_VERSION = 2
_READABLE = (1, 2)
"""Version 1 knows no shared files of state, and is not to continue from entries that name some."""


@dataclass
class LedgerEntry:
    """One committed batch."""

    batch: int
    end: dict[str, Any]
    """The offset after the batch, with the positions up to which it has read the sources."""
    receipts: dict[str, list[Any]] = field(default_factory=dict)
    feedback: list[str] = field(default_factory=list)
    state: dict[int, StateHead] = field(default_factory=dict)
    """The heads of all buckets after this batch."""
    buckets: int = 1
    """The number of buckets; 0 if the job keeps nothing and the number is not known."""
    times: dict[str, Any] = field(default_factory=dict)
    """The progress of event time, for windows."""
    digests: dict[str, int] = field(default_factory=dict)
    """Digests of all state changes so far, by vertex; only with replicas, which compare them."""
    keys: int = KEYS_VERSION
    """The version of the key hash that assigns the state to buckets."""
    default_instances: int = 0
    """The number of instances of vertices for which the job declares none; 0 is the number of buckets, as in
    version 0.1.0."""


@dataclass(frozen=True)
class Intent:
    """A batch that is about to be processed, recorded by jobs that must not process any record twice."""

    batch: int
    end: dict[str, Any]
    buckets: int
    default_instances: int = 0


class Ledger:
    """The entries of one job."""

    def __init__(self, folder: Path, *, synced: bool = False) -> None:
        self._folder = folder
        self._synced = synced
        """Whether an entry is synced to the disk before the job continues."""

    def commit(self, entry: LedgerEntry) -> bool:
        """Add an entry and return True; return False, without a change, if the batch has an entry already."""
        staged = self._stage(entry)
        try:
            os.link(staged, self._path(entry.batch))
        except FileExistsError:
            return False
        except FileNotFoundError:
            raise self._superseded_error() from None
        finally:
            staged.unlink(missing_ok=True)
        if not self.has(entry.batch):
            # The folder was renamed during the link: the entry exists, and the new holder of the folder
            # continues from it.
            raise self._superseded_error()
        self._sync()
        return True

    def replace(self, entry: LedgerEntry) -> None:
        """Replace the entry of a batch. The job must not be running."""
        self._stage(entry).replace(self._path(entry.batch))
        self._sync()

    def has(self, batch: int) -> bool:
        """Return whether a batch has been committed."""
        return self._path(batch).exists()

    def read(self, batch: int) -> LedgerEntry | None:
        """Return the entry of a batch; None if there is none."""
        fields = self._read(self._path(batch), f"what batch {batch} did")
        if fields is None:
            return None
        fields["state"] = {int(bucket): StateHead(**head) for bucket, head in fields["state"].items()}
        return LedgerEntry(**{"keys": 1, **fields})

    def _read(self, path: Path, what: str) -> dict[str, Any] | None:
        try:
            text = path.read_text()
        except FileNotFoundError:
            return None
        try:
            frame = json.loads(text)
            body, version = frame["entry"], frame["version"]
            fields = json.loads(body) if zlib.crc32(body.encode()) == frame["crc"] else None
        except (ValueError, KeyError, TypeError, AttributeError):
            fields = None
        if fields is None:
            raise JobFailedError(
                f"{path} is damaged: it does not say {what}. Restore it from a copy of the job's folder, or"
                " start from scratch with fresh=True (--fresh)"
            )
        if version not in _READABLE:
            raise JobFailedError(
                f"{path} has version {version}; this is version {FORMAT_VERSION}. Run the job with the"
                " version of Penstock that wrote it, or start from scratch with fresh=True (--fresh)"
            )
        return cast("dict[str, Any]", fields)

    def latest(self) -> LedgerEntry | None:
        """Return the newest entry; None if there is none."""
        newest = self.latest_batch()
        return self.read(newest) if newest >= 0 else None

    def latest_batch(self) -> int:
        """Return the number of the newest entry; -1 if there is none."""
        return max(self._batches(), default=-1)

    def intend(self, intent: Intent) -> None:
        """Record that a batch is about to be processed. Replaces the intent of the previous batch."""
        self._stage(intent).replace(self._intent)
        self._sync()

    def intent(self) -> Intent | None:
        """Return the newest intent; None if the job records none."""
        fields = self._read(self._intent, "which batch has been begun")
        return Intent(**fields) if fields is not None else None

    def note_published(self, batch: int) -> None:
        """Record that all output of a batch, and of all batches before it, is published.

        If this fails, because another worker has taken over the folder or the disk is full, the next run
        publishes the batch again.
        """
        with suppress(OSError):
            write_private(self._published, str(batch))

    def forget_published(self) -> None:
        """Remove the record of published output, because batches are counted from 0 again."""
        self._published.unlink(missing_ok=True)

    def is_published(self, batch: int) -> bool:
        """Return whether the output of a batch is recorded as published. A dying process records nothing, so
        the output of the last batch may be published without a record.
        """
        try:
            return int(self._published.read_text()) >= batch
        except (FileNotFoundError, ValueError):
            return False

    def trim(self, keep: int) -> None:
        """Remove all entries but the newest ``keep``."""
        for batch in self._batches()[:-keep]:
            self._path(batch).unlink(missing_ok=True)

    @property
    def _published(self) -> Path:
        return self._folder / "published"

    @property
    def _intent(self) -> Path:
        return self._folder / "intent"

    def _stage(self, entry: LedgerEntry | Intent) -> Path:
        body = json.dumps(vars(entry), default=vars, sort_keys=True)  # Much faster than asdict.
        text = json.dumps({"version": FORMAT_VERSION, "crc": zlib.crc32(body.encode()), "entry": body})
        staged = self._folder / f".{uuid4().hex}"
        try:
            descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileNotFoundError:
            raise self._superseded_error() from None
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            if self._synced:
                file.flush()
                os.fsync(descriptor)
        return staged

    def _sync(self) -> None:
        """Sync the folder of entries to the disk."""
        if self._synced:
            with suppress(FileNotFoundError):  # Another worker has taken over the job.
                sync(self._folder)

    def _superseded_error(self) -> SupersededError:
        return SupersededError(
            f"{self._folder} is missing: another worker has taken over the job, or removed it"
        )

    def _batches(self) -> list[int]:
        return sorted(
            int(name[:-5]) for name in os.listdir(self._folder) if name.endswith(".json") and name[0] != "."
        )

    def _path(self, batch: int) -> Path:
        return self._folder / f"{batch:012d}.json"


def skipped_entry(last: LedgerEntry | None, intent: Intent | None) -> LedgerEntry | None:
    """Return the entry of an interrupted batch that must not be repeated; None if there is none.

    The records of the batch and its feedback are lost. State is that before the batch.
    """
    done = last.batch if last is not None else -1
    # Version 0.1.0 also wrote intents of empty batches, which were never started.
    if intent is None or intent.batch != done + 1 or intent.end["batch"] <= intent.batch:
        return None
    if last is None:
        return LedgerEntry(
            intent.batch, intent.end, buckets=intent.buckets, default_instances=intent.default_instances
        )
    return replace(last, batch=intent.batch, end=intent.end, receipts={}, feedback=[])


def repaired_entry(last: LedgerEntry) -> LedgerEntry:
    """Return an entry with an invalid end corrected.

    Version 0.1.0, with guarantee "at-most-once", could skip an empty batch and write an end before the batch
    itself, after which no batch could follow.
    """
    if last.end["batch"] > last.batch:
        return last
    return replace(last, end={**last.end, "batch": last.batch + 1})


def remove_leftovers(folders: JobFolders, last: LedgerEntry | None) -> None:
    """Remove files of attempts that were never committed. The job must not be running."""
    done = last.batch if last is not None else -1
    for bucket in os.listdir(folders.state):
        for file in os.listdir(folders.state / bucket):
            if int(file.partition("-")[0]) > done:
                (folders.state / bucket / file).unlink()
    for file in os.listdir(folders.feedback):
        if last is None or file not in last.feedback:
            (folders.feedback / file).unlink()
