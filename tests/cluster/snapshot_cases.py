"""Snapshots for tests: what a job's home may look like, and a machine that dies at a chosen moment."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

from penstock.backups.snapshots.snapshot_manifest import Manifest, SnapshotFile
from penstock.backups.snapshots.snapshot_store import SnapshotStore
from penstock.backups.snapshots.transfer_format import frame

JOB = "count"
Home = Mapping[str, bytes]
"""By path, what is in each file."""


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def home_at(batch: int, *, large: int = 0) -> dict[str, bytes]:
    """A job's home after a batch: files that stay, files that grow, files that come and go."""
    folder = f"cluster-jobs/{JOB}/000001-0001"
    home = {
        "logs/in/log.json": b'{"partitions": 2}',
        "logs/in/p00000/.lock": b"x" * batch,
        f"{folder}/ledger/{batch}": b"entry %d" % batch,
        f"{folder}/state/00000/{batch:012d}-a.delta": b"state %d" % batch,
        f"{folder}/structure.json": b"{}",
        "notes": b"",
    }
    for number in range(batch + 1):
        home[f"logs/in/p00000/{number * 10:020d}.seg"] = b"segment %d" % number * 20
    # One that is published, and has its staged name still; and one that is not published.
    home["logs/in/staging/stage-0a.seg"] = home[f"logs/in/p00000/{batch * 10:020d}.seg"]
    home["logs/in/staging/stage-0b.seg"] = b"not published %d" % batch
    if large:
        home["logs/in/p00001/00000000000000000000.seg"] = os.urandom(large)
    return home


def manifest_of(home: Home, batch: int, *, revision: int = 1, attempt: int = 1, number: int = 0) -> Manifest:
    pieces = tuple(SnapshotFile(path, sha(data), len(data)) for path, data in sorted(home.items()))
    return Manifest(JOB, number, revision, attempt, batch, 12.5 + batch, pieces, ("logs/in/readers",))


class Files:
    """Opens the pieces of a home, and counts."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.opened: list[str] = []

    def __call__(self, piece: SnapshotFile) -> BinaryIO:
        self.opened.append(piece.path)
        return io.BytesIO(self._home[piece.path])


def upload(store: SnapshotStore, data: bytes, offset: int, size: int, *, name: str, job: str = JOB) -> bool:
    """Send the rest of an object from an offset on; return whether it is complete then."""
    with store.receive(job, name, offset, size) as receiving:
        receiving.write(data)
        return receiving.finish()


def keep(store: SnapshotStore, home: Home, manifest: Manifest) -> int:
    """Bring a snapshot into a store as a client does."""
    data = {sha(content): content for content in home.values()}
    small = []
    for name, held in store.missing(JOB, manifest.pieces).items():
        if len(data[name]) < 50:
            small.append(frame(name, data[name]))
        else:
            upload(store, data[name][held:], held, len(data[name]), name=name)
    store.unpack(JOB, b"".join(small))
    return store.commit(JOB, manifest)


def kept(folder: Path, homes: Sequence[Home], **options: Any) -> SnapshotStore:
    """A store with a snapshot of each home, one after the other."""
    store = SnapshotStore(folder, **options)
    for batch, home in enumerate(homes):
        keep(store, home, manifest_of(home, batch))
    return store


def content_of(folder: Path) -> dict[str, bytes]:
    """What is in all files below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


class KilledError(BaseException):
    """The process is dead: nothing that it wanted to do from here on happens."""


_CALLS = ("open", "link", "rename", "replace", "unlink", "mkdir", "rmdir", "fsync", "write", "ftruncate")


@contextmanager
def killed_after(calls: int) -> Iterator[None]:
    """Let so many calls of the operating system happen that change something, and none after that."""
    left = calls

    def counted(real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left <= 0:
                raise KilledError
            left -= 1
            return real(*args, **kwargs)

        return call

    patches = [mock.patch.object(os, name, counted(getattr(os, name))) for name in _CALLS]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()
