"""The agreement as a shared folder: each decision is a file that can be created only once.

The folder ``agreed-N`` contains the decisions about batch N and later. To forget old batches, it is renamed
first, and then their files are removed. A process that uses the old name does not find it, looks for the
folder again, and learns from the new name that its batch is forgotten. The content of plans is opaque here.
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
_FIND_SECONDS = 2.0
_PAUSE = 0.001
_CHUNK = 65_536


class AgreementFolder:
    """Accesses the agreement of a job. Each process or thread uses its own instance."""

    def __init__(self, place: Path, *, synced: bool = False) -> None:
        self._place = place
        self._synced = synced
        """Whether a decision is synced to disk before it takes effect."""
        self._folder = ""
        self._floor = 0

    def create(self, charter: Charter) -> None:
        """Create the agreement unless it exists. Its folder must not contain anything else."""
        parent = self._place.parent
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = parent / f".{self._place.name}.{uuid4().hex}"
        try:
            for folder in (staged, staged / _MEMBERS, staged / f"agreed-{charter.begin:012d}"):
                folder.mkdir(mode=0o700)
            _write(str(staged / _CHARTER), _with_checksum(vars(charter)))
            staged.rename(self._place)  # Fails if the agreement exists and is not empty.
        except OSError:
            if not (self._place / _CHARTER).exists():
                raise
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def charter(self) -> Charter | None:
        """Return where the agreement began; None if it does not exist yet."""
        fields = _read(str(self._place / _CHARTER))
        if fields is None:
            if self._place.exists() and os.listdir(self._place):
                raise self._missing(self._place / _CHARTER)
            return None
        return Charter(**fields)

    def shared(self) -> AgreementStatus | None:
        """Return how far the replicas have come. Lists all files."""
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
        below = self._floor - 1  # Ignores remaining files of forgotten batches.
        return AgreementStatus(
            charter.begin, self._floor, max(last[".plan"], below), max(last[".done"], below)
        )

    def head(self, after: int) -> int:
        """Return the last planned batch, given that batches up to ``after`` are planned.

        Batches are planned in order, so only the following files are checked: this is called often.
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
        """Return which decisions about a batch exist."""
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
        """Return the plan of a batch, if there is one. Raises ReplicaOutdatedError for a forgotten batch."""
        fields = self._get(batch, "plan")
        return Plan(**fields) if fields is not None else None

    def propose(self, plan: Plan) -> Plan:
        """Propose a plan for a batch, and return the accepted plan: this one, or an earlier one."""
        return Plan(**self._create_once(plan.batch, "plan", vars(plan)))

    def committed(self, batch: int) -> Commit | None:
        """Return the commit of a batch, if there is one."""
        fields = self._get(batch, "done")
        return Commit(**fields) if fields is not None else None

    def commit(self, commit: Commit) -> Commit:
        """Offer the commit of a batch, and return the accepted one: this one, or an earlier one."""
        return Commit(**self._create_once(commit.batch, "done", vars(commit)))

    def mark_published(self, batch: int) -> None:
        """Note that the output of a batch is completely published."""
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
        """Return whether the output of a batch is marked as published."""
        while True:
            folder = self._current()
            if batch < self._floor or _exists(f"{folder}/{batch:012d}.out"):
                return True
            if _exists(folder):
                return False
            self._folder = ""

    def report_progress(self, standing: ReplicaProgress) -> None:
        """Write the progress of a replica."""
        members = self._place / _MEMBERS
        staged = f"{members}/.{standing.name}.{uuid4().hex}"
        try:
            _write(staged, _with_checksum(vars(standing)))
            os.replace(staged, f"{members}/{standing.name}")  # noqa: PTH105 - once a batch
        except FileNotFoundError:
            raise self._missing(members) from None

    def replica_progress(self) -> dict[str, ReplicaProgress]:
        """Return the progress of each replica, by name."""
        members = self._place / _MEMBERS
        try:
            names = os.listdir(members)
        except FileNotFoundError:
            return {}
        read = {name: _read(f"{members}/{name}") for name in sorted(names) if not name.startswith(".")}
        return {name: ReplicaProgress(**fields) for name, fields in read.items() if fields is not None}

    def leave(self, name: str) -> None:
        """Remove the progress of a replica."""
        (self._place / _MEMBERS / name).unlink(missing_ok=True)

    def forget(self, floor: int) -> None:
        """Remove the decisions about batches before ``floor``.

        Only a replica that has published all of them itself may call this: then no replica needs to do so.
        """
        folder = self._current()
        if floor <= self._floor:
            return
        if not _exists(f"{folder}/{floor - 1:012d}.done"):
            if not _exists(folder):
                self._folder = ""  # Another replica has renamed it.
                return
            raise ValueError(f"batch {floor - 1} is not committed, so it must not be forgotten")
        renamed = self._place / f"agreed-{floor:012d}"
        try:
            os.rename(folder, renamed)  # noqa: PTH104 - the name is text
        except FileNotFoundError:
            self._folder = ""
            return
        self._folder, self._floor = str(renamed), floor
        with suppress(FileNotFoundError):
            for name in os.listdir(renamed):
                # A name begins with a dot if its writer has died before it completed the file.
                batch = name.lstrip(".")[:12]
                if batch.isdigit() and int(batch) < floor:
                    (renamed / name).unlink(missing_ok=True)

    def _get(self, batch: int, kind: str) -> dict[str, Any] | None:
        while True:
            folder = self._current()
            self._check_not_forgotten(batch)
            fields = _read(f"{folder}/{batch:012d}.{kind}")
            if fields is not None or _exists(folder):
                return fields
            self._folder = ""

    def _create_once(self, batch: int, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Create a decision unless it exists, and return the one that exists then."""
        content = _with_checksum(fields)
        while True:
            folder = self._current()
            self._check_not_forgotten(batch)
            path = f"{folder}/{batch:012d}.{kind}"
            staged = f"{folder}/.{batch:012d}.{uuid4().hex}"
            try:
                _write(staged, content, synced=self._synced)
                os.link(staged, path)
                if self._synced:
                    sync(Path(folder))
                found = _parse_checked(path, content) if _exists(path) else None
            except FileExistsError:
                found = _read(path)
            except FileNotFoundError:
                found = None
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(staged)  # noqa: PTH108 - the name is text
            if found is not None:
                return found
            # The folder was renamed meanwhile: if the batch is forgotten now, the new file does not count.
            self._folder = ""

    def _check_not_forgotten(self, batch: int) -> None:
        if batch < self._floor:
            raise ReplicaOutdatedError(
                f"batch {batch} was removed from the agreement, which begins with batch {self._floor} now"
            )

    def _current(self) -> str:
        """Return the folder by its last known name, or find it if it was renamed."""
        deadline = time.monotonic() + _FIND_SECONDS if not self._folder else 0.0
        while not self._folder:
            with suppress(FileNotFoundError):
                names = os.listdir(self._place)
                floors = [int(found[1]) for name in names if (found := _FOLDER.fullmatch(name)) is not None]
                if floors:
                    self._floor = max(floors)
                    self._folder = f"{self._place}/agreed-{self._floor:012d}"
                    break
            # A listing taken during a rename may lack the folder.
            if time.monotonic() > deadline:
                raise self._missing(self._place)
            time.sleep(_PAUSE)
        return self._folder

    def _missing(self, what: Path) -> JobFailedError:
        return JobFailedError(f"{what} is missing: restore it, or start from scratch (--fresh)")


def _with_checksum(fields: Mapping[str, Any]) -> bytes:
    body = json.dumps(dict(fields), sort_keys=True).encode()
    return b"%08x %s" % (zlib.crc32(body), body)


def _write(path: str, content: bytes, *, synced: bool = False) -> None:
    """Write a new file. If that fails, for example on a full disk, remove it and raise JobFailedError."""
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
        Path(path).unlink(missing_ok=True)  # No other process uses this name.
        raise JobFailedError(f"{path} cannot be written: {error.strerror}: check the disk") from error


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
    return _parse_checked(path, content)


def _parse_checked(path: str, content: bytes) -> dict[str, Any]:
    checksum, _, body = content.partition(b" ")
    if checksum == b"%08x" % zlib.crc32(body):
        return dict(json.loads(body))
    raise JobFailedError(f"{path} is damaged: restore it from a copy, or start from scratch (--fresh)")
