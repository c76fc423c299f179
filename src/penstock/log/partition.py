"""One partition: a folder of segments, each named by the position of its first record.

The next segment can only have one name, so a reader tries to open that name instead of listing the folder,
and a producer publishes by linking its sealed file to that name: the file system lets exactly one win.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from penstock.errors import LogCorruptionError, LogError
from penstock.log import segment
from penstock.log.description import sync_folder
from penstock.log.segment import DamageError, Header, Segment
from penstock.record import Record

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EXDEV, errno.ENOSYS)
_FILE = re.compile(r"(\d{20})\.seg")


class Partition:
    """A partition's segments, and how far this process knows them."""

    def __init__(self, log: str, number: int, folder: Path, *, sync: bool = False) -> None:
        self.log = log
        self.number = number
        self.folder = folder
        self.sync = sync
        self._lock = threading.Lock()
        self._starts: array[int] | None = None
        self._end = 0

    def file(self, position: int) -> Path:
        """The one name that a segment beginning at ``position`` can have."""
        return self.folder / f"{position:020d}.seg"

    def begin(self) -> int:
        """The position of the first record."""
        starts = self._index()
        return starts[0] if starts else self._end

    def end(self) -> int:
        """The position after the last record: what is known, and every segment that was added since."""
        self._index()
        position = self._end
        while (header := self.header(position)) is not None:
            self._learn(position, header.count)
            position += header.count
        return position

    def listed(self) -> list[int]:
        """The positions that the folder's file names show now, in order."""
        matches = (_FILE.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match is not None)

    def header(self, position: int) -> Header | None:
        """The header of the segment at ``position``, or None when there is no such file."""
        try:
            return segment.read_header(self.file(position))[0]
        except FileNotFoundError:
            return None
        except DamageError as error:
            self.damaged(position, str(error))

    def load(self, position: int) -> Segment:
        """The whole, verified segment at ``position``."""
        try:
            return segment.load(self.file(position))
        except FileNotFoundError:
            self.damaged(position, "the file is missing")
        except DamageError as error:
            self.damaged(position, str(error))

    def damaged(self, position: int, cause: str) -> NoReturn:
        """Refuse a segment."""
        raise LogCorruptionError(self.log, self.number, position, str(self.file(position)), cause) from None

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
        if not self.begin() <= start <= known:
            raise LogError(
                f"log {self.log!r}, partition {self.number} has no position {start}: "
                f"it begins at {self.begin()} and ends at {known}"
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
        position = self._segment_of(start) if start < last else last
        while position < last:
            loaded = self.load(position)
            after = position + loaded.header.count
            if after > start:
                yield from loaded.records(max(start - position, 0), last - position)
            position = after
        if damage is not None and (end is None or end > known):
            raise damage

    def publish(self, staged: Path, header: Header) -> None:
        """Make a sealed file the next segment of this partition, and remove its staged name."""
        self._index()
        self._link(staged, header, self._end)
        staged.unlink(missing_ok=True)

    def publish_once(self, staged: Path, header: Header, since: int) -> int:
        """As ``publish``, unless the segment is at or after position ``since`` already.

        Returns the position after the segment.
        """
        known = self.end()
        if since > known:
            raise LogError(
                f"log {self.log!r}, partition {self.number} ends at {known}, before position {since} where a "
                "segment was to be published: is this another log of the same name?"
            )
        position = max(since, self.begin())
        while position < known:
            found = self.header(position)
            if found is None:
                self.damaged(position, "the file is missing")
            position += found.count
            if found.id == header.id:
                break
        else:
            position = self._link(staged, header, position)
        staged.unlink(missing_ok=True)
        return position

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
                if self.sync:
                    sync_folder(self.folder)
            self._learn(position, found.count)
            position += found.count
            # The segment may be there by another process's hand, or by our own link whose answer a
            # network file system lost and asked again.
            if found.id == header.id:
                return position

    def _segment_of(self, position: int) -> int:
        starts = self._index()
        return starts[bisect_right(starts, position) - 1]

    def _index(self) -> array[int]:
        if self._starts is None:
            with self._lock:
                if self._starts is None:
                    self._scan()
        assert self._starts is not None
        return self._starts

    def _scan(self) -> None:
        starts = self.listed()
        # A listing taken while producers work may miss a segment that is older than one it shows. In the
        # middle that costs a longer walk; the first one must be right.
        if starts and starts[0] != 0 and self.file(0).exists():
            starts.insert(0, 0)
        # The last segment counts as known only when its header has been read.
        self._end = starts.pop() if starts else 0
        self._starts = array("q", starts)

    def _learn(self, position: int, count: int) -> None:
        with self._lock:
            if position == self._end and self._starts is not None:
                self._starts.append(position)
                self._end = position + count
