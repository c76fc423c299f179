"""Takes a snapshot of a running job without stopping it.

Hard-links the files of the newest ledger entry and all published segments, and starts over if the ledger has
advanced meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from penstock.backups.snapshots.link_cache import LinkCache
from penstock.backups.snapshots.snapshot_errors import SnapshotError
from penstock.backups.snapshots.snapshot_manifest import Manifest, SnapshotFile
from penstock.connect.sink_staging import STAGED
from penstock.engine.storage.job_folder import Claim
from penstock.engine.storage.keyed_state import bucket_folder, file_path, shared_folder
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.engine.storage.serialization import UNSEALED
from penstock.engine.storage.state_chain import oldest_shared_batch
from penstock.errors import PenstockError
from penstock.log import StagedSegment, log_description
from penstock.log.partition_lock import PartitionLock
from penstock.log.segment import SegmentDamageError, read_header


class RecordCounts:
    """Reads and caches the number of records in segments."""

    def __init__(self) -> None:
        self._known: dict[str, int | None] = {}

    def count(self, file: Path) -> int | None:
        """Return the number of records in a segment; None when its header is damaged."""
        name = file.name
        if name not in self._known:
            try:
                self._known[name] = read_header(file)[0].count
            except SegmentDamageError:
                # Copy a damaged segment as it is: its reader reports the damage.
                self._known[name] = None
        return self._known[name]

    def keep_only(self, names: set[str]) -> None:
        """Drop all other entries."""
        self._known = {name: count for name, count in self._known.items() if name in names}


def gapless(starts: Sequence[int], counts: Mapping[int, int | None]) -> list[int] | None:
    """Return the start positions of the segments of a partition; None when there is a gap between them.

    Segments whose records an earlier, longer one contains are left out: compaction is about to remove them.

    >>> gapless([5, 8, 10], {5: 3, 8: 2, 10: 1}), gapless([5, 8, 10], {5: 5, 8: 2, 10: 1})
    ([5, 8, 10], [5, 10])
    >>> gapless([5, 10], {5: 3, 10: 1}) is None
    True
    """
    kept: list[int] = []
    reach: int | None = None
    """The position at which the next segment must begin; None if unknown."""
    for start in starts:
        count = counts[start]
        if reach is not None and count is not None and start < reach and start + count <= reach:
            continue
        if reach is not None and start != reach:
            return None
        kept.append(start)
        reach = start + count if count is not None else None
    return kept


_MAX_ATTEMPTS = 20
_SUFFIX = ".seg"


class CutError(SnapshotError):
    """No snapshot can be taken now. The job is not affected; retry later."""


class _ChangedError(Exception):
    """The job has changed in a way that is inconsistent with the files held so far: start over."""


class SnapshotCutter:
    """Takes snapshots of one job's home, whose files are held in a folder beside it.

    The held files are named by their digests and are hard links to the files of the home, so that no file is
    copied and no digest is computed twice. Only the files of the last snapshot are kept.
    """

    def __init__(self, home: Path, job: str, into: Path) -> None:
        self._home = home
        self._job = job
        self._held = LinkCache(home, into)
        self._counts = RecordCounts()

    def invalidate(self) -> None:
        """Discard all held files, so that the next snapshot computes their digests again."""
        self._held.keep_only(())

    def open(self, piece: SnapshotFile) -> BinaryIO:
        """Open a file of the last snapshot."""
        return self._held.open(piece.sha256)

    def cut(
        self, *, number: int, revision: int, attempt: int, before: Manifest | None, now: float
    ) -> Manifest | None:
        """Take a snapshot of a worker's data; None when it equals the snapshot ``before``.

        Raises CutError when that is not possible now.
        """
        own = f"cluster-jobs/{self._job}/{Claim(revision, attempt).name}"
        try:
            for _ in range(_MAX_ATTEMPTS):
                with suppress(_ChangedError):
                    batch, pieces = _Cut(self._home, own, self._held, self._counts).take()
                    break
            else:
                raise CutError(
                    f"job {self._job!r} changed {_MAX_ATTEMPTS} times while a snapshot of it was taken"
                )
        except OSError as error:
            raise CutError(f"no snapshot of job {self._job!r} can be taken: {error}") from error
        except CutError:
            raise
        except PenstockError as error:
            raise CutError(f"no snapshot of job {self._job!r} can be taken: {error}") from error
        finally:
            self._held.drop_new()
        manifest = Manifest(self._job, number, revision, attempt, batch, now, pieces)
        names = {piece.sha256 for piece in pieces}
        self._held.keep_only(names)
        self._counts.keep_only(names)
        if before is not None and (before.pieces, before.batch) == (pieces, batch):
            return None
        return manifest


class _Cut:
    """One attempt to take a snapshot."""

    def __init__(self, home: Path, own: str, held: LinkCache, counts: RecordCounts) -> None:
        self._home = home
        self._own = own
        self._held = held
        self._counts = counts
        self._ledger = Ledger(home / own / "ledger")
        self._files: dict[str, str] = {}
        """By path: the name under which the file is held."""
        self._partitions: dict[str, list[tuple[int, str]]] = {}
        """By folder of a partition: the start position and path of each segment."""

    def take(self) -> tuple[int, tuple[SnapshotFile, ...]]:
        """Hold all files of the snapshot; return its last batch and its files."""
        batch = self._newest()
        entry = self._hold_entry(batch) if batch >= 0 else None
        if entry is not None:
            self._hold_state(entry)
        self._hold_notes(entry)
        staged = self._hold_staged(entry)
        logs = self._hold_logs()
        if self._newest() != batch or self._any_missing(staged) or self._logs() != logs:
            raise _ChangedError
        if entry is not None and not self._held.is_same(self._entry(batch), self._files[self._entry(batch)]):
            raise _ChangedError  # The entry was rewritten, as for another number of buckets.
        return batch, self._digest_files()

    def _newest(self) -> int:
        if not (self._home / self._own / "ledger").is_dir():
            raise CutError(f"{self._home / self._own} does not exist: another worker has taken over the job")
        return self._ledger.latest_batch()

    def _entry(self, batch: int) -> str:
        return f"{self._own}/ledger/{batch:012d}.json"

    def _hold_entry(self, batch: int) -> LedgerEntry:
        self._hold(self._entry(batch))
        entry = self._ledger.read(batch)
        if entry is None:
            raise _ChangedError
        return entry

    def _hold_state(self, entry: LedgerEntry) -> None:
        for name in entry.feedback:
            self._hold(f"{self._own}/feedback/{name}")
        state = Path(self._own) / "state"
        self._hold_batches(
            shared_folder(state), oldest_shared_batch(entry.state.values(), entry.batch), entry
        )
        for bucket, head in sorted(entry.state.items()):
            found = self._hold_batches(bucket_folder(state, bucket), head.base_batch, entry)
            if str(file_path(state, bucket, head.newest)) not in self._files or found < head.least_own_files:
                raise _ChangedError

    def _hold_batches(self, folder: Path, first: int, entry: LedgerEntry) -> int:
        """Hold the files of state in a folder from one batch up to that of the entry; return how many.

        These are the files of chains, and perhaps what failed attempts have left.
        """
        found = 0
        for file in self._list(str(folder)):
            made, _, rest = file.name.partition("-")
            if not made.isdigit() or not rest or rest.endswith(UNSEALED):
                continue
            if first <= int(made) <= entry.batch:
                self._hold(f"{folder}/{file.name}", file.inode())
                found += 1
        return found

    def _hold_notes(self, entry: LedgerEntry | None) -> None:
        """Hold the job's own records: its intent (a batch that must not begin twice) and its structure."""
        intent = f"{self._own}/ledger/intent"
        if (self._home / intent).exists():
            self._hold(intent)
        if (entry is not None or intent in self._files) and (self._home / self._own / "job.json").exists():
            self._hold(f"{self._own}/job.json")

    def _hold_staged(self, entry: LedgerEntry | None) -> list[str]:
        """Hold the staged files of an entry and return their paths; also hold marks of delivered batches.

        Segments are copied, not linked: a staged segment with a second link counts as published.
        """
        if entry is None:
            return []
        named = set(_segments(entry))
        segments = [
            f"logs/{log}/{log_description.STAGING}/{file.name}"
            for log in self._logs()
            for file in (self._list(f"logs/{log}/{log_description.STAGING}") if named else ())
            if file.name in named
        ]
        for path in segments:
            self._files[path] = self._copy(path)
        return segments + self._hold_waiting(entry)

    def _hold_waiting(self, entry: LedgerEntry) -> list[str]:
        """Hold the staged records of sinks that deliver from the driver, and the marks beside them."""
        named = {Path(STAGED) / name for name in _waiting(entry)}
        stems = {path.with_suffix("") for path in named}
        found = [
            folder / file.name
            for folder in sorted({path.parent for path in named})
            for file in self._list(str(folder))
            if (folder / file.name).with_suffix("") in stems
        ]
        for path in found:
            self._hold(str(path))
        return [str(path) for path in found if path in named]

    def _any_missing(self, staged: Sequence[str]) -> bool:
        """Return whether a segment was published meanwhile, so that it may not be among the held ones."""
        return not all((self._home / path).exists() for path in staged)

    def _logs(self) -> dict[str, int]:
        """Return the inode of each log's description by name: it identifies the log, like an id."""
        found = {}
        for folder in self._list("logs"):
            with suppress(FileNotFoundError, NotADirectoryError):
                found[folder.name] = (Path(folder.path) / log_description.FILE).stat().st_ino
        return dict(sorted(found.items()))

    def _hold_logs(self) -> dict[str, int]:
        logs = self._logs()
        for log, inode in logs.items():
            self._hold(f"logs/{log}/{log_description.FILE}", inode)
            for file in self._list(f"logs/{log}/{log_description.READERS}"):
                if not file.name.startswith("."):
                    self._hold(f"logs/{log}/{log_description.READERS}/{file.name}", file.inode())
            for number in range(log_description.read(self._home / "logs" / log).partitions):
                self._hold_partition(log, f"logs/{log}/{log_description.partition_folder(number)}")
        return logs

    def _hold_partition(self, log: str, folder: str) -> None:
        """Hold all segments of a partition, under its shared lock so that none is removed meanwhile."""
        with PartitionLock(log, self._home / folder / log_description.LOCK).shared():
            found = [file for file in self._list(folder) if _is_segment(file.name)]
            for file in found:
                self._hold(f"{folder}/{file.name}", file.inode())
        self._partitions[folder] = sorted((int(f.name[:-4]), f"{folder}/{f.name}") for f in found)

    def _digest_files(self) -> tuple[SnapshotFile, ...]:
        """Rename all held files to their digests, and check that no segment is missing."""
        # Several paths may share one link: a restored home can contain hard links to the same file.
        digests = {name: self._held.digest(name) for name in sorted(set(self._files.values()))}
        pieces = {path: SnapshotFile(path, *digests[name]) for path, name in self._files.items()}
        for segments in self._partitions.values():
            files = {start: self._held.file(pieces[path].sha256) for start, path in segments}
            kept = gapless(sorted(files), {start: self._counts.count(file) for start, file in files.items()})
            if kept is None:
                raise _ChangedError
            for start, path in segments:
                if start not in kept:
                    del pieces[path]
        return tuple(pieces[path] for path in sorted(pieces))

    def _hold(self, path: str, inode: int | None = None) -> None:
        try:
            self._files[path] = self._held.hold(path, inode)
        except FileNotFoundError:
            raise _ChangedError from None

    def _copy(self, path: str) -> str:
        try:
            return self._held.copy(path)
        except FileNotFoundError:
            raise _ChangedError from None

    def _list(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._home / folder) as found:
                return sorted(found, key=lambda file: file.name)
        except FileNotFoundError:
            return []


def _segments(entry: LedgerEntry) -> Iterator[str]:
    """Yield the staged segments in the receipts of an entry."""
    for receipts in entry.receipts.values():
        for receipt in receipts:
            if isinstance(receipt, dict):
                for segment in receipt.get("segments", ()):
                    yield StagedSegment.from_json(segment).file


def _waiting(entry: LedgerEntry) -> Iterator[str]:
    """Yield the files in the receipts of an entry whose records the driver delivers."""
    for receipts in entry.receipts.values():
        for receipt in receipts:
            if isinstance(receipt, dict) and receipt.get("marked"):
                yield from receipt["files"]


def _is_segment(name: str) -> bool:
    return name.endswith(_SUFFIX) and name[:-4].isdigit()
