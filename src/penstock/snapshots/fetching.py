"""Fetches objects from a supervisor's store into a folder, going on where an earlier try ended."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from penstock.snapshots.connection import Connection, json_body
from penstock.snapshots.durable import disk_full_errors, make_private
from penstock.snapshots.errors import SnapshotDamagedError, SnapshotMissingError, TransferError
from penstock.snapshots.framing import SMALL, frames, packs
from penstock.snapshots.manifest import SnapshotFile
from penstock.snapshots.rate import TokenBucket

_BLOCK = 1 << 20


class Fetch:
    """One go at it. ``go_on`` raises when no more is wanted."""

    def __init__(
        self,
        connection: Connection,
        base: str,
        into: Path,
        bucket: TokenBucket,
        go_on: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._base = base
        self._into = into
        self._bucket = bucket
        self._go_on = go_on
        self._there: set[str] = set()
        self.moved = 0
        """How many bytes of objects have come."""

    def run(self, pieces: Iterable[SnapshotFile]) -> None:
        """Fetch what is not there."""
        with disk_full_errors():
            make_private(self._into)
        wanted = {piece.sha256: piece for piece in pieces}
        self._there = {name for name in sorted(wanted) if self._has(name)}
        for name in self._there:
            del wanted[name]
        small = [piece for _, piece in sorted(wanted.items()) if piece.size <= SMALL]
        for pack in packs(small):
            self._go_on()
            self._fetch_pack(pack)
        for _, piece in sorted(wanted.items()):
            if piece.sha256 not in self._there:
                self._fetch(piece)

    def _has(self, name: str) -> bool:
        """Whether an object is there from an earlier try. A damaged one is removed."""
        path = self._into / name
        try:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == name:
                    return True
        except FileNotFoundError:
            return False
        path.unlink()
        return False

    def _keep(self, name: str) -> None:
        self._part(name).replace(self._into / name)
        self._there.add(name)

    def _fetch_pack(self, pack: list[SnapshotFile]) -> None:
        """Fetch small objects together. What does not come, or not whole, is asked for by itself later."""
        body, headers = json_body({"objects": [piece.sha256 for piece in pack]})
        with self._connection.asking("POST", f"{self._base}/pack", len(body), [body], headers) as answer:
            try:
                for each in frames(answer):
                    self.moved += len(each.data)
                    self._bucket.take(len(each.data))
                    self._go_on()
                    if hashlib.sha256(each.data).hexdigest() == each.sha256:
                        with disk_full_errors(), _open(self._part(each.sha256), os.O_TRUNC) as file:
                            file.write(each.data)
                        self._keep(each.sha256)
            except SnapshotDamagedError:
                return

    def _fetch(self, piece: SnapshotFile) -> None:
        for _ in range(2):
            with disk_full_errors(), _open(self._part(piece.sha256), os.O_APPEND) as file:
                offset = file.seek(0, os.SEEK_END)
                right = offset <= piece.size and self._fetch_rest(piece, offset, file)
            if right:
                self._keep(piece.sha256)
                return
            self._part(piece.sha256).unlink(missing_ok=True)
            if offset == 0:
                break
        raise SnapshotDamagedError(f"{self._connection.url} has object {piece.sha256} ({piece.path}) damaged")

    def _fetch_rest(self, piece: SnapshotFile, offset: int, file: BinaryIO) -> bool:
        """Add what is missing to the end of a file; return whether it is the object then."""
        digest = hashlib.sha256()
        file.seek(0)
        while block := file.read(_BLOCK):
            digest.update(block)
        if offset < piece.size:
            headers = {"Range": f"bytes={offset}-"}
            path = f"{self._base}/objects/{piece.sha256}"
            try:
                with self._connection.asking("GET", path, 0, (), headers) as answer:
                    if answer.length != piece.size - offset or (offset > 0) != (answer.status == 206):
                        return False
                    while block := answer.read(self._bucket.block):
                        self._go_on()
                        self._bucket.take(len(block))
                        file.write(block)
                        digest.update(block)
                        self.moved += len(block)
            except TransferError as error:
                if error.status == 404:
                    raise SnapshotMissingError(
                        f"{self._connection.url} has lost object {piece.sha256} ({piece.path})"
                    ) from None
                if error.status != 416:
                    raise
                return False
        return digest.hexdigest() == piece.sha256

    def _part(self, sha256: str) -> Path:
        return self._into / f"{sha256}.part"


def _open(path: Path, flags: int) -> BinaryIO:
    """Open a file that only its owner can read."""
    descriptor = os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    return os.fdopen(descriptor, "r+b")
