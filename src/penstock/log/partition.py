"""One partition: a folder of segments, each named by the position of its first record.

The next segment can only have one name, so a reader tries to open that name instead of listing the folder,
and a producer publishes by linking its sealed file to that name: the file system lets exactly one win.

Whatever file has the name of a position holds the records from there on, for ever: retention takes files
away from the front, and compaction puts a longer one in place of the first of a run and then takes the others
away. So a reader is right with any file it opens, and looks at the folder again when the one it knew is gone.
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
    """A partition's segments, and how far this process knows them."""

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
        """The one name that a segment beginning at ``position`` can have."""
        # A string: to make a Path takes longer than to open the file.
        return f"{self._prefix}{position:020d}.seg"

    def begin(self) -> int:
        """The position of the first record."""
        if self._generation != self.name_lock.generation():
            self._refresh()
        with self._lock:
            return self._starts[0] if self._starts else self._end

    def end(self) -> int:
        """The position after the last record: what is known, and every segment that was added since."""
        position, generation = self._known()
        while True:
            header = self.header(position)
            if header is not None:
                self._learn(position, header.count)
                position += header.count
            elif generation == self.name_lock.generation():
                return position
            else:
                # What followed may be part of a longer segment now.
                self._refresh()
                position, generation = self._known()

    def listed(self) -> list[int]:
        """The positions that the folder's file names show now, in order."""
        matches = (_FILE.fullmatch(name) for name in os.listdir(self.folder))
        return sorted(int(match[1]) for match in matches if match is not None)

    def snapshot(self) -> tuple[list[int], int]:
        """The first positions of all segments, and the generation they belong to."""
        with self.name_lock.shared() as generation:
            return self.listed(), generation

    def header(self, position: int) -> Header | None:
        """The header of the segment at ``position``, or None when there is no such file."""
        try:
            return segment.read_header(self.file(position))[0]
        except FileNotFoundError:
            return None
        except SegmentDamageError as error:
            self.damaged(position, str(error))

    def load(self, position: int) -> Segment | None:
        """The whole, verified segment at ``position``, or None when there is no such file."""
        try:
            return segment.load(self.file(position))
        except FileNotFoundError:
            return None
        except SegmentDamageError as error:
            self.damaged(position, str(error))

    def damaged(self, position: int, cause: str) -> NoReturn:
        """Refuse a segment."""
        raise LogCorruptionError(self.log, self.number, position, self.file(position), cause) from None

    def check_start(self, start: int) -> tuple[int, LogCorruptionError | None]:
        """Refuse a position that is not in the partition; else the end, and why it is no further.

        What lies before a damaged last segment is sound, so that damage ends a read instead of forbidding it.
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
            self._gone(start, begin)
        if not begin <= start <= known:
            raise LogError(
                f"log {self.log!r}, partition {self.number} has no position {start}: "
                f"it begins at {begin} and ends at {known}"
            )
        return known, damage

    def read(self, start: int, end: int | None = None) -> Iterator[list[Record]]:
        """The records from ``start`` up to ``end`` or the end as it is now."""
        known, damage = self.check_start(start)
        return self._records(start, end, known, damage)

    def _records(
        self, start: int, end: int | None, known: int, damage: LogCorruptionError | None
    ) -> Iterator[list[Record]]:
        last = known if end is None else min(end, known)
        position = start
        first, generation = self._place(position) if position < last else (position, _UNSEEN)
        while position < last:
            loaded = self.load(first)
            if loaded is None:
                first, generation = self._place_again(position, first, generation)
                continue
            after = first + loaded.header.count
            if after > position:
                yield from loaded.records(position - first, last - first)
                position = after
            first = after
        if damage is not None and (end is None or end > known):
            raise damage

    def publish(self, staged: Path, header: Header) -> None:
        """Make a sealed file the next segment of this partition, and remove its staged name."""
        with self.name_lock.shared() as generation:
            self._scan(generation)
            self._link(staged, header, self._end)
        self._settle(staged)

    def publish_once(self, staged: Path, header: Header, since: int) -> int:
        """As ``publish``, unless the segment is at or after position ``since`` already.

        Returns the position after the segment.
        """
        with self.name_lock.shared() as generation:
            self._scan(generation)
            known, begin = self.end(), self.begin()
            if since > known:
                raise LogError(
                    f"log {self.log!r}, partition {self.number} ends at {known}, before position {since}"
                    " where a segment was to be published: is this another log of the same name?"
                )
            after = self._published(header.id, max(since, begin), known)
            if after is None and since < begin and not staged.exists():
                # It was published and deleted since: its staged name goes first, see remove.
                after = since
            if after is None:
                after = self._link(staged, header, known)
        self._settle(staged)
        return after

    def _settle(self, staged: Path) -> None:
        if self.fsync == "full":
            sync(self.folder)
        staged.unlink(missing_ok=True)

    def _published(self, segment_id: bytes, since: int, known: int) -> int | None:
        """The position after a segment that is at or after ``since``, alone or as a part of a longer one."""
        if since >= known:
            return None
        first, _ = self._place(since)
        while first < known:
            found = self.header(first)
            if found is None:
                self.damaged(first, "the file is missing")
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
            self.damaged(position, "the file is missing")
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
                        "partition's folder) is gone, and its segment is not in the partition"
                    ) from error
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                raise LogError(
                    f"log {self.log!r}: the file system of {self.folder} makes no hard links "
                    f"({error.strerror}): keep the log on one that does"
                ) from error
            else:
                found = header
            self._learn(position, found.count)
            position += found.count
            # The segment may be there by another process's hand, or by our own link whose answer a
            # network file system lost and asked again.
            if found.id == header.id:
                return position

    def swap(self, run: Sequence[int], merged: Path, generation: int) -> bool:
        """Put one file in place of a run of segments, unless names have been taken away since a generation.

        Only the name of the first is used again, for a file that has all of their records.
        """
        with self.name_lock.exclusive() as held:
            if held.generation != generation:
                return False
            held.advance()
            self._remove_staged_names(run[0])
            merged.rename(self.file(run[0]))
            # The disk must know the longer segment before it may forget what is in it.
            sync(self.folder)
            for position in run[1:]:
                self.remove(position)
        return True

    def cut(self, through: int, generation: int) -> bool:
        """Delete the segments that begin at or before a position, from the front, but never the newest.

        Does nothing, and says so, when names have been taken away since a generation: a segment may have
        grown by what is not to be deleted.
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
        """Delete a segment. Only for who holds the name lock exclusively."""
        self._remove_staged_names(position)
        Path(self.file(position)).unlink(missing_ok=True)

    def _remove_staged_names(self, position: int) -> None:
        """Remove what a crash between link and unlink left.

        A publish that is repeated would take such a name without its segment for one that is unpublished.
        """
        try:
            status = Path(self.file(position)).stat()
        except FileNotFoundError:
            return
        if status.st_nlink > 1:
            segment_staging.remove_names(self._staging, status.st_ino)

    def _known(self) -> tuple[int, int]:
        if self._generation == _UNSEEN:
            self._refresh()
        with self._lock:
            return self._end, self._generation

    def _place(self, position: int) -> tuple[int, int]:
        """Where to begin to look for a position, and the generation in which that was right."""
        if self._generation == _UNSEEN:
            self._refresh()
        with self._lock:
            if position >= self._end:
                return self._end, self._generation
            index = bisect_right(self._starts, position) - 1
            if index >= 0:
                return self._starts[index], self._generation
        return self._gone(position, self.begin())

    def _place_again(self, position: int, missing: int, generation: int) -> tuple[int, int]:
        if generation == self.name_lock.generation():
            self.damaged(missing, "the file is missing")
        self._refresh()
        return self._place(position)

    def _gone(self, position: int, begin: int) -> NoReturn:
        raise LogError(
            f"log {self.log!r}, partition {self.number}: positions before {begin} are gone, and {position}"
            f" was asked for: retention has deleted them. Read from {begin} on; a job starts from there with"
            " fresh=True (--fresh)"
        )

    def _refresh(self) -> None:
        with self.name_lock.shared() as generation:
            self._scan(generation)

    def _scan(self, generation: int) -> None:
        """Look at the folder, unless this generation has been seen. Only for who holds the name lock."""
        if generation == self._generation:
            return
        with self._lock:
            if generation == self._generation:
                return
            starts = self.listed()
            # A listing taken while producers work may miss a segment that is older than one it shows. In
            # the middle that costs a longer walk; the first one must be right.
            if starts and starts[0] != 0 and Path(self.file(0)).exists():
                starts.insert(0, 0)
            # The last segment counts as known only when its header has been read.
            self._end = starts.pop() if starts else 0
            self._starts = array("q", starts)
            self._generation = generation

    def _learn(self, position: int, count: int) -> None:
        with self._lock:
            if position == self._end:
                self._starts.append(position)
                self._end = position + count
