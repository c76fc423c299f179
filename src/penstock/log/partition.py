"""One partition: a folder of segments, each named by the position of its first record.

The name of the next segment is known in advance, so a reader tries to open that name instead of listing the
folder, and a producer publishes by hard-linking its sealed file to that name: only one producer succeeds.

A file named by a position always holds the records from that position on. Retention removes files from the
front; compaction replaces the first file of a run by a longer one and then removes the others. So any file
that a reader opens is valid, and the reader lists the folder again when a file that it expected is missing.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from penstock.errors import LogCorruptionError, LogError
from penstock.local_files import sync
from penstock.log import segment, segment_staging
from penstock.log.log_description import LOCK, Fsync
from penstock.log.partition_lock import PartitionLock
from penstock.log.segment import Header, Segment, SegmentDamageError
from penstock.record import Record

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EXDEV, errno.ENOSYS)
_FILE = re.compile(r"(\d{20})\.seg")
_UNSEEN = -1


class Partition:
    """A partition's segments, and this process's cache of their positions."""

    def __init__(
        self, log: str, number: int, folder: Path, staging_folder: Path, *, fsync: Fsync = "none"
    ) -> None:
        self.log = log
        self.number = number
        self.folder = folder
        self.fsync = fsync
        self.name_lock = PartitionLock(log, folder / LOCK)
        self._staging = staging_folder
        self._prefix = f"{folder}{os.sep}"
        self._lock = threading.Lock()
        self._starts: array[int] = array("q")
        self._end = 0
        self._generation = _UNSEEN

    def file(self, position: int) -> str:
        """Return the file name of the segment that begins at ``position``."""
        # A string, because constructing a Path takes longer than opening the file.
        return f"{self._prefix}{position:020d}.seg"

    def begin(self) -> int:
        """Return the position of the first record."""
        if self._generation != self.name_lock.generation():
            self._refresh()
        with self._lock:
            return self._starts[0] if self._starts else self._end

    def end(self) -> int:
        """Return the position after the last record, including segments added since the last call."""
        position, generation = self._known_end()
        while True:
            header = self.header(position)
            if header is not None:
                self._extend_known(position, header.count)
                position += header.count
            elif generation == self.name_lock.generation():
                return position
            else:
                # Segments were removed or merged since: read the folder again.
                self._refresh()
                position, generation = self._known_end()

    def listed(self) -> list[int]:
        """List the folder and return the positions of its segments in order."""
        matches = (_FILE.fullmatch(name) for name in os.listdir(self.folder))
        return sorted(int(match[1]) for match in matches if match is not None)

    def snapshot(self) -> tuple[list[int], int]:
        """Return the first positions of all segments, and the generation they belong to."""
        with self.name_lock.shared() as generation:
            return self.listed(), generation

    def header(self, position: int) -> Header | None:
        """Return the header of the segment at ``position``, or None when there is no such file."""
        try:
            return segment.read_header(self.file(position))[0]
        except FileNotFoundError:
            return None
        except SegmentDamageError as error:
            self.raise_damaged(position, str(error))

    def load(self, position: int) -> Segment | None:
        """Load and verify the segment at ``position``; None when there is no such file."""
        try:
            return segment.load(self.file(position))
        except FileNotFoundError:
            return None
        except SegmentDamageError as error:
            self.raise_damaged(position, str(error))

    def raise_damaged(self, position: int, cause: str) -> NoReturn:
        """Raise a ``LogCorruptionError`` for the segment at ``position``."""
        raise LogCorruptionError(self.log, self.number, position, self.file(position), cause) from None

    def check_start(self, start: int) -> tuple[int, LogCorruptionError | None]:
        """Raise ``LogError`` if ``start`` is not in the partition; else return the end and any damage there.

        A damaged last segment does not prevent reading the intact segments before it: the end is then the
        position of the damage.
        """
        damage: LogCorruptionError | None = None
        try:
            known = self.end()
        except LogCorruptionError as error:
            known, damage = self._end, error
        if damage is not None and start > known:
            raise damage
        begin = self.begin()
        if 0 <= start < begin:
            self._raise_deleted(start, begin)
        if not begin <= start <= known:
            raise LogError(
                f"log {self.log!r}, partition {self.number} has no position {start}: "
                f"it begins at {begin} and ends at {known}"
            )
        return known, damage

    def read(self, start: int, end: int | None = None) -> Iterator[list[Record]]:
        """Yield lists of the records from ``start`` up to ``end``, by default the current end."""
        known, damage = self.check_start(start)
        return self._records(start, end, known, damage)

    def _records(
        self, start: int, end: int | None, known: int, damage: LogCorruptionError | None
    ) -> Iterator[list[Record]]:
        last = known if end is None else min(end, known)
        position = start
        first, generation = self._locate(position) if position < last else (position, _UNSEEN)
        while position < last:
            loaded = self.load(first)
            if loaded is None:
                first, generation = self._relocate(position, first, generation)
                continue
            after = first + loaded.header.count
            if after > position:
                yield from loaded.records(position - first, last - first)
                position = after
            first = after
        if damage is not None and (end is None or end > known):
            raise damage

    def publish(self, staged: Path, header: Header) -> None:
        """Publish a sealed file as the next segment of this partition, and remove its staged name."""
        with self.name_lock.shared() as generation:
            self._scan(generation)
            self._link(staged, header, self._end)
        self._finish_publish(staged)

    def publish_once(self, staged: Path, header: Header, since: int) -> int:
        """Publish like ``publish``, unless the segment is already at or after position ``since``.

        Returns the position after the segment.
        """
        with self.name_lock.shared() as generation:
            self._scan(generation)
            known, begin = self.end(), self.begin()
            if since > known:
                raise LogError(
                    f"log {self.log!r}, partition {self.number} ends at {known}, before position {since}"
                    " from which a segment should be published: was the log deleted and created again?"
                )
            after = self._published(header.id, max(since, begin), known)
            if after is None and since < begin and not staged.exists():
                # The segment was published and then deleted by retention: remove deletes staged names first.
                after = since
            if after is None:
                after = self._link(staged, header, known)
        self._finish_publish(staged)
        return after

    def _finish_publish(self, staged: Path) -> None:
        if self.fsync == "full":
            sync(self.folder)
        staged.unlink(missing_ok=True)

    def _published(self, segment_id: bytes, since: int, known: int) -> int | None:
        """Search for a segment from ``since`` on, also inside merged ones; return the position after it."""
        if since >= known:
            return None
        first, _ = self._locate(since)
        while first < known:
            found = self.header(first)
            if found is None:
                self.raise_damaged(first, "the file is missing")
            parts = self._parts(first, found)
            for part_id, count in parts:
                first += count
                if part_id == segment_id:
                    return first
        return None

    def _parts(self, position: int, header: Header) -> Sequence[tuple[bytes, int]]:
        if not header.parts:
            return [(header.id, header.count)]
        loaded = self.load(position)
        if loaded is None:
            self.raise_damaged(position, "the file is missing")
        return loaded.parts

    def _link(self, staged: Path, header: Header, position: int) -> int:
        while True:
            try:
                os.link(staged, self.file(position))
            except (FileExistsError, FileNotFoundError) as error:
                found = self.header(position)
                if found is None:
                    raise LogError(
                        f"log {self.log!r}, partition {self.number}: the staged file {staged} (or the "
                        "partition's folder) no longer exists, and its segment is not in the partition"
                    ) from error
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                raise LogError(
                    f"log {self.log!r}: the file system of {self.folder} does not support hard links "
                    f"({error.strerror}): move the log to one that does"
                ) from error
            else:
                found = header
            self._extend_known(position, found.count)
            position += found.count
            # The segment may already be here: linked by another process, or by our own link call, which a
            # network file system retried after losing the answer.
            if found.id == header.id:
                return position

    def swap(self, run: Sequence[int], merged: Path, generation: int) -> bool:
        """Replace a run of segments by one merged file, unless the generation has changed.

        The merged file takes the name of the first segment; the other names are removed.
        """
        with self.name_lock.exclusive() as held:
            if held.generation != generation:
                return False
            held.advance()
            self._remove_staged_names(run[0])
            merged.rename(self.file(run[0]))
            # The merged segment must be durable before the segments that it contains are removed.
            sync(self.folder)
            for position in run[1:]:
                self.remove(position)
        return True

    def cut(self, through: int, generation: int) -> bool:
        """Delete the segments that begin at or before a position, but never the newest one.

        Does nothing and returns False when the generation has changed: compaction may have merged a segment
        with records that must be kept.
        """
        with self.name_lock.exclusive() as held:
            if held.generation != generation:
                return False
            held.advance()
            for start in self.listed()[:-1]:
                if start > through:
                    break
                self.remove(start)
        return True

    def remove(self, position: int) -> None:
        """Delete a segment. The caller must hold the name lock exclusively."""
        self._remove_staged_names(position)
        Path(self.file(position)).unlink(missing_ok=True)

    def _remove_staged_names(self, position: int) -> None:
        """Remove staged names of a published segment, left by a crash between link and unlink.

        Once the segment is deleted, a repeated publish would take such a name for an unpublished segment.
        """
        try:
            status = Path(self.file(position)).stat()
        except FileNotFoundError:
            return
        if status.st_nlink > 1:
            segment_staging.remove_names(self._staging, status.st_ino)

    def _known_end(self) -> tuple[int, int]:
        if self._generation == _UNSEEN:
            self._refresh()
        with self._lock:
            return self._end, self._generation

    def _locate(self, position: int) -> tuple[int, int]:
        """Return the start of the segment to search for a position, and the generation of that answer."""
        if self._generation == _UNSEEN:
            self._refresh()
        with self._lock:
            if position >= self._end:
                return self._end, self._generation
            index = bisect_right(self._starts, position) - 1
            if index >= 0:
                return self._starts[index], self._generation
        return self._raise_deleted(position, self.begin())

    def _relocate(self, position: int, missing: int, generation: int) -> tuple[int, int]:
        if generation == self.name_lock.generation():
            self.raise_damaged(missing, "the file is missing")
        self._refresh()
        return self._locate(position)

    def _raise_deleted(self, position: int, begin: int) -> NoReturn:
        raise LogError(
            f"log {self.log!r}, partition {self.number}: positions before {begin} are gone, and {position}"
            f" was asked for: retention has deleted them. Read from {begin} on; a job starts from there with"
            " fresh=True (--fresh)"
        )

    def _refresh(self) -> None:
        with self.name_lock.shared() as generation:
            self._scan(generation)

    def _scan(self, generation: int) -> None:
        """List the folder if the generation is new. The caller must hold the name lock."""
        if generation == self._generation:
            return
        with self._lock:
            if generation == self._generation:
                return
            starts = self.listed()
            # A listing taken while producers append may miss a segment that is older than one it shows. A
            # missing entry in the middle only lengthens a search, but the first position must be exact.
            if starts and starts[0] != 0 and Path(self.file(0)).exists():
                starts.insert(0, 0)
            # The end of the last segment is known only once its header has been read.
            self._end = starts.pop() if starts else 0
            self._starts = array("q", starts)
            self._generation = generation

    def _extend_known(self, position: int, count: int) -> None:
        with self._lock:
            if position == self._end:
                self._starts.append(position)
                self._end = position + count
