"""Staging: files that are not part of the log yet."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from penstock.errors import LogError
from penstock.log.segment import Sealed

# A staged file belongs to the holder of its StagedSegment, possibly on another machine. The files of an
# append, a merge or a reader's position can be deleted once their process has ended.
Kind = Literal["append", "stage", "merge", "reader"]
TEMPORARY: tuple[Kind, ...] = ("append", "merge", "reader")

_FILE = re.compile(r"(append|stage|merge|reader)-([0-9a-f]{32})\.seg")


@dataclass(frozen=True)
class StagedSegment:
    """A segment that is written but not visible until it is published.

    >>> staged = StagedSegment("00" * 16, 3, "stage-" + "00" * 16 + ".seg", count=10, bytes=640)
    >>> StagedSegment.from_json(staged.to_json()) == staged
    True
    """

    id: str
    partition: int
    file: str
    count: int
    bytes: int

    def to_json(self) -> str:
        """Return one line of JSON, from which ``from_json`` restores the segment."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> StagedSegment:
        """Restore a segment from the output of ``to_json``."""
        try:
            staged = cls(**json.loads(text))
            numbers = (staged.partition, staged.count, staged.bytes)
            sound = staged.file == file_name("stage", staged.id) and all(
                type(n) is int and n >= 0 for n in numbers
            )
        except (TypeError, ValueError) as error:
            raise LogError(f"this is not a staged segment: {text:.200}") from error
        if not sound or _FILE.fullmatch(staged.file) is None:
            raise LogError(f"this is not a staged segment: {text:.200}")
        return staged


def file_name(kind: Kind, segment_id: str) -> str:
    """Return the name of a file in staging.

    >>> file_name("stage", "00ff")
    'stage-00ff.seg'
    """
    return f"{kind}-{segment_id}.seg"


def new_id(owner: str | None = None) -> bytes:
    """Return a new segment id. Ids of one owner share a prefix, by which its staged files are found.

    >>> new_id("job").hex().startswith(owned_by("job"))
    True
    """
    return os.urandom(16) if owner is None else bytes.fromhex(owned_by(owner)) + os.urandom(12)


def owned_by(owner: str) -> str:
    """Return the prefix of the ids of an owner's segments."""
    return hashlib.sha256(owner.encode()).hexdigest()[:8]


def write(path: Path, sealed: Sealed, *, sync: bool) -> None:
    """Write a sealed segment to a new file; remove the file if that fails."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(sealed.header.pack() + sealed.parts)
            file.write(sealed.payload)
            if sync:
                file.flush()
                os.fsync(descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def remove_names(folder: Path, inode: int) -> None:
    """Remove all staged names of a published file, found by its inode."""
    for path in folder.iterdir():
        if _FILE.fullmatch(path.name) is not None:
            try:
                same = path.stat().st_ino == inode
            except FileNotFoundError:
                continue
            if same:
                path.unlink(missing_ok=True)


def discard(
    folder: Path,
    older_than_seconds: float,
    kinds: tuple[Kind, ...],
    owner: str | None = None,
    now: float | None = None,
) -> int:
    """Delete staging files of the given kinds that are older than an age, and return how many.

    With an ``owner``, segments staged by others are kept. The staged name of a published file (a second link
    to the same inode) was left by a process that died before it could unlink it, and is deleted regardless of
    kind and owner.
    """
    limit = (time.time() if now is None else now) - older_than_seconds
    deleted = 0
    for path in sorted(folder.iterdir()):
        match = _FILE.fullmatch(path.name)
        if match is None:
            continue
        try:
            status = path.stat()
            published = status.st_nlink > 1
            others = match[1] == "stage" and owner is not None and not match[2].startswith(owned_by(owner))
            if status.st_mtime <= limit and (published or (match[1] in kinds and not others)):
                path.unlink()
                deleted += 1
        except FileNotFoundError:
            continue  # its owner has removed it
    return deleted
