"""The agreement as a shared folder: each decision is a file that can be created only once.

``agreed-N`` holds what is agreed on from batch N on. To forget old batches the folder is renamed first and
its old files are removed afterwards. A process that uses the old name finds nothing, looks again, and
learns from the new name that its batch is history. It does not know what is in a plan.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.errors import JobFailedError, ReplicaOutdatedError
from penstock.local_files import sync
from penstock.replicas.agreement.agreement_protocol import (
    AgreementStatus,
    BatchStatus,
    Charter,
    Commit,
    Plan,
    ReplicaProgress,
)

_FOLDER = re.compile(r"agreed-(\d{12})")
_CHARTER = "charter"
_MEMBERS = "members"
_PATIENCE = 2.0
_PAUSE = 0.001
_CHUNK = 65_536


class AgreementFolder:
    """The shared place of one job. A process, or a thread of it, has its own."""

    def __init__(self, place: Path, *, synced: bool = False) -> None:
        self._place = place
        self._synced = synced
        """Whether what is agreed on is on the disk before anybody acts on it."""
        self._folder = ""
        self._floor = 0

    def create(self, charter: Charter) -> None:
        """Make the shared place, unless it is there. Nobody else may have put anything into its folder."""
        parent = self._place.parent
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = parent / f".{self._place.name}.{uuid4().hex}"
        try:
            for folder in (staged, staged / _MEMBERS, staged / f"agreed-{charter.begin:012d}"):
                folder.mkdir(mode=0o700)
            _write(str(staged / _CHARTER), _framed(vars(charter)))
            staged.rename(self._place)  # fails if there is one that is not empty
        except OSError:
            if not (self._place / _CHARTER).exists():
                raise
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def charter(self) -> Charter | None:
        """Return what was so at the beginning; None when there is no shared place yet."""
        fields = _read(str(self._place / _CHARTER))
        if fields is None:
            if self._place.exists() and os.listdir(self._place):
                raise self._gone(self._place / _CHARTER)
            return None
        return Charter(**fields)

    def shared(self) -> AgreementStatus | None:
        """Return how far the replicas have come together. Reads the names of all files."""
        charter = self.charter()
        if charter is None:
            return None
        while True:
            folder = self._current()
            with suppress(FileNotFoundError):
                names = os.listdir(folder)
                break
            self._folder = ""
        last = {
            kind: max((int(name[:12]) for name in names if name.endswith(kind)), default=-1)
            for kind in (".plan", ".done")
        }
        below = self._floor - 1  # What was not removed of what is forgotten does not count.
        return AgreementStatus(
            charter.begin, self._floor, max(last[".plan"], below), max(last[".done"], below)
        )

    def head(self, after: int) -> int:
        """Return the last batch that is planned, for one who knows of all up to ``after``.

        Plans are made one after the other, so that there is only to look for the next: this is done often.
        """
        if self.charter() is None:
            return after
        while True:
            folder = self._current()
            head = max(after, self._floor - 1)
            while _exists(f"{folder}/{head + 1:012d}.plan"):
                head += 1
            if _exists(folder):
                return head
            self._folder = ""

    def see(self, batch: int) -> BatchStatus:
        """Return what is agreed on about a batch."""
        while True:
            folder = self._current()
            if batch < self._floor:
                return BatchStatus(self._floor)
            name = f"{folder}/{batch:012d}"
            seen = BatchStatus(self._floor, _exists(f"{name}.plan"), _exists(f"{name}.done"))
            if seen.planned or _exists(folder):
                return seen
            self._folder = ""

    def plan(self, batch: int) -> Plan | None:
        """Return what a batch reads, if that is agreed on. Raises ReplicaOutdatedError when it is history."""
        fields = self._get(batch, "plan")
        return Plan(**fields) if fields is not None else None

    def propose(self, plan: Plan) -> Plan:
        """Plan a batch, and return the plan that counts: this, or one that was made before."""
        return Plan(**self._make(plan.batch, "plan", vars(plan)))

    def committed(self, batch: int) -> Commit | None:
        """Return whose output of a batch counts, if that is agreed on."""
        fields = self._get(batch, "done")
        return Commit(**fields) if fields is not None else None

    def commit(self, commit: Commit) -> Commit:
        """Offer the output of a batch, and return the one that counts."""
        return Commit(**self._make(commit.batch, "done", vars(commit)))

    def mark_published(self, batch: int) -> None:
        """Note that the output of a batch is where it belongs."""
        while True:
            folder = self._current()
            if batch < self._floor:
                return
            with suppress(FileNotFoundError):
                os.close(
                    os.open(f"{folder}/{batch:012d}.out", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                )
                return
            self._folder = ""

    def is_published(self, batch: int) -> bool:
        """Whether the output of a batch is where it belongs."""
        while True:
            folder = self._current()
            if batch < self._floor or _exists(f"{folder}/{batch:012d}.out"):
                return True
            if _exists(folder):
                return False
            self._folder = ""

    def report_progress(self, standing: ReplicaProgress) -> None:
        """Say how far a replica has come."""
        members = self._place / _MEMBERS
        staged = f"{members}/.{standing.name}.{uuid4().hex}"
        try:
            _write(staged, _framed(vars(standing)))
            os.replace(staged, f"{members}/{standing.name}")  # noqa: PTH105 - once a batch
        except FileNotFoundError:
            raise self._gone(members) from None

    def replica_progress(self) -> dict[str, ReplicaProgress]:
        """Return how far each replica has come, by name."""
        members = self._place / _MEMBERS
        try:
            names = os.listdir(members)
        except FileNotFoundError:
            return {}
        read = {name: _read(f"{members}/{name}") for name in sorted(names) if not name.startswith(".")}
        return {name: ReplicaProgress(**fields) for name, fields in read.items() if fields is not None}

    def leave(self, name: str) -> None:
        """Remove the progress report of a replica."""
        (self._place / _MEMBERS / name).unlink(missing_ok=True)

    def forget(self, floor: int) -> None:
        """Forget what was agreed on about batches before one.

        Only for a replica that has published them all itself: then nobody needs to see to it any more.
        """
        folder = self._current()
        if floor <= self._floor:
            return
        if not _exists(f"{folder}/{floor - 1:012d}.done"):
            if not _exists(folder):
                self._folder = ""  # another replica was faster
                return
            raise ValueError(f"batch {floor - 1} is not committed, and must not be forgotten")
        renamed = self._place / f"agreed-{floor:012d}"
        try:
            os.rename(folder, renamed)  # noqa: PTH104 - the name is text
        except FileNotFoundError:
            self._folder = ""
            return
        self._folder, self._floor = str(renamed), floor
        with suppress(FileNotFoundError):
            for name in os.listdir(renamed):
                # Before the number there is a dot if whoever wrote the file has died over it.
                batch = name.lstrip(".")[:12]
                if batch.isdigit() and int(batch) < floor:
                    (renamed / name).unlink(missing_ok=True)

    def _get(self, batch: int, kind: str) -> dict[str, Any] | None:
        while True:
            folder = self._current()
            self._check(batch)
            fields = _read(f"{folder}/{batch:012d}.{kind}")
            if fields is not None or _exists(folder):
                return fields
            self._folder = ""

    def _make(self, batch: int, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Make what can be made only once, and return what stands."""
        content = _framed(fields)
        while True:
            folder = self._current()
            self._check(batch)
            path = f"{folder}/{batch:012d}.{kind}"
            staged = f"{folder}/.{batch:012d}.{uuid4().hex}"
            try:
                _write(staged, content, synced=self._synced)
                os.link(staged, path)
                if self._synced:
                    sync(Path(folder))
                found = _content(path, content) if _exists(path) else None
            except FileExistsError:
                found = _read(path)
            except FileNotFoundError:
                found = None
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(staged)  # noqa: PTH108 - the name is text
            if found is not None:
                return found
            # The folder was renamed meanwhile. If the batch is history by now, what was made does not count.
            self._folder = ""

    def _check(self, batch: int) -> None:
        if batch < self._floor:
            raise ReplicaOutdatedError(
                f"batch {batch} is history: the replicas have agreed on all batches before {self._floor}"
            )

    def _current(self) -> str:
        """Return the folder by its last known name, or look for it if that is gone."""
        deadline = time.monotonic() + _PATIENCE if not self._folder else 0.0
        while not self._folder:
            with suppress(FileNotFoundError):
                names = os.listdir(self._place)
                floors = [int(found[1]) for name in names if (found := _FOLDER.fullmatch(name)) is not None]
                if floors:
                    self._floor = max(floors)
                    self._folder = f"{self._place}/agreed-{self._floor:012d}"
                    break
            # A list that is read while a folder is renamed may lack it.
            if time.monotonic() > deadline:
                raise self._gone(self._place)
            time.sleep(_PAUSE)
        return self._folder

    def _gone(self, what: Path) -> JobFailedError:
        return JobFailedError(f"{what} is gone: put it back, or start from scratch (--fresh)")


def _framed(fields: Mapping[str, Any]) -> bytes:
    body = json.dumps(dict(fields), sort_keys=True).encode()
    return b"%08x %s" % (zlib.crc32(body), body)


def _write(path: str, content: bytes, *, synced: bool = False) -> None:
    """Write a new file. Raises JobFailedError when there is no room for it, and leaves nothing then."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if synced:
                file.flush()
                os.fsync(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        Path(path).unlink(missing_ok=True)  # Nobody else has a file of that name.
        raise JobFailedError(f"{path} cannot be written: {error.strerror}: see to the disk") from error


def _exists(path: str) -> bool:
    return os.access(path, os.F_OK)


def _read(path: str) -> dict[str, Any] | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        content = b""
        while chunk := os.read(descriptor, _CHUNK):
            content += chunk
    finally:
        os.close(descriptor)
    return _content(path, content)


def _content(path: str, content: bytes) -> dict[str, Any]:
    checksum, _, body = content.partition(b" ")
    if checksum == b"%08x" % zlib.crc32(body):
        return dict(json.loads(body))
    raise JobFailedError(f"{path} is damaged: put it back from a copy, or start from scratch (--fresh)")
