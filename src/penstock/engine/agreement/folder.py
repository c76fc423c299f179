"""The shared place as a folder: what is agreed on is a file that can be made only once.

The folder's own name says from which batch on it is complete, so that what was agreed on long ago can be
forgotten: it is renamed first, and only then are old files removed. Whoever works by the old name, however
long it was paused, finds nothing there, looks again, and sees by the new name that its batch is history.
"""

from __future__ import annotations

import json
import os
import re
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.engine.agreement.core import Seen, Shared
from penstock.errors import JobFailedError, OutdatedError

_FOLDER = re.compile(r"agreed-(\d{12})")
_CHARTER = "charter"
_PATIENCE = 2.0
_PAUSE = 0.001


@dataclass(frozen=True)
class Charter:
    """What was so when the replicas began to agree."""

    begin: int
    """The first batch that is agreed on."""
    sources: Mapping[str, Any]
    """Where the sources began, for replicas that begin with batch 0."""


@dataclass(frozen=True)
class Plan:
    """What a batch reads."""

    batch: int
    end: Mapping[str, Any]
    by: str
    at: float


@dataclass(frozen=True)
class Commit:
    """Whose output of a batch counts."""

    batch: int
    id: str
    """Of the attempt that made the output. A replica that runs a batch twice makes two."""
    by: str
    """The name of the replica."""
    generation: int
    """Of the code that made it."""
    end: Mapping[str, Any]
    receipts: Mapping[str, list[Any]] = field(default_factory=dict)
    """Of sinks that can take over what another process has staged."""
    digests: Mapping[str, int] = field(default_factory=dict)
    """By sink, of what was written."""
    state: Mapping[str, int] = field(default_factory=dict)
    """By vertex, of all changes of its state so far; given at intervals only."""
    at: float = 0.0


@dataclass(frozen=True)
class Standing:
    """How far a replica has come, by its own words."""

    name: str
    batch: int
    at: float
    seconds: float = 0.0
    """How long its last batch has taken."""


class Agreement:
    """The shared place of one job."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._folder: Path | None = None
        self._floor = 0

    def found(self, charter: Charter) -> None:
        """Make the shared place, unless it is there."""
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = self._place / f".{uuid4().hex}"
        staged.mkdir(mode=0o700)
        self._write(staged / _CHARTER, asdict(charter))
        first = self._place / f"agreed-{charter.begin:012d}"
        try:
            if self._find() is None:
                staged.rename(first)
        except OSError:
            if self._find() is None:
                raise
        finally:
            with suppress(FileNotFoundError):
                (staged / _CHARTER).unlink()
                staged.rmdir()

    def charter(self) -> Charter | None:
        """Return what was so at the beginning; None when there is no shared place yet."""
        while (folder := self._find()) is not None:
            fields = _read(folder / _CHARTER)
            if fields is not None:
                return Charter(**fields)
            if folder.exists():
                raise JobFailedError(
                    f"{folder / _CHARTER} is gone: put it back, or start from scratch (--fresh)"
                )
        return None

    def shared(self) -> Shared | None:
        """Return how far the replicas have come together."""
        charter = self.charter()
        if charter is None:
            return None
        folder = self._folder
        assert folder is not None, "it has just been found"
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return self.shared()
        plans = [int(name[:12]) for name in names if name.endswith(".plan")]
        return Shared(charter.begin, self._floor, max(plans, default=max(charter.begin, self._floor) - 1))

    def see(self, batch: int) -> Seen:
        """Return what is agreed on about a batch."""
        while True:
            folder = self._current()
            if batch < self._floor:
                return Seen(self._floor)
            seen = Seen(
                self._floor,
                (folder / f"{batch:012d}.plan").exists(),
                (folder / f"{batch:012d}.done").exists(),
            )
            if seen.planned or folder.exists():
                return seen
            self._folder = None

    def plan(self, batch: int) -> Plan | None:
        """Return what a batch reads, if that is agreed on. Raises OutdatedError when it is history."""
        fields = self._get(batch, "plan")
        return Plan(**fields) if fields is not None else None

    def propose(self, plan: Plan) -> Plan:
        """Plan a batch, and return the plan that counts: this, or one that was made before."""
        return Plan(**self._make(plan.batch, "plan", asdict(plan)))

    def committed(self, batch: int) -> Commit | None:
        """Return whose output of a batch counts, if that is agreed on."""
        fields = self._get(batch, "done")
        return Commit(**fields) if fields is not None else None

    def commit(self, commit: Commit) -> Commit:
        """Offer the output of a batch, and return the one that counts."""
        return Commit(**self._make(commit.batch, "done", asdict(commit)))

    def mark_out(self, batch: int) -> None:
        """Note that the output of a batch is where it belongs."""
        with suppress(FileNotFoundError):
            path = self._current() / f"{batch:012d}.out"
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def is_out(self, batch: int) -> bool:
        """Whether the output of a batch is where it belongs."""
        folder = self._current()
        return batch < self._floor or (folder / f"{batch:012d}.out").exists()

    def stand(self, standing: Standing) -> None:
        """Say how far a replica has come."""
        with suppress(FileNotFoundError):
            folder = self._current()
            staged = folder / f".{uuid4().hex}"
            self._write(staged, asdict(standing))
            staged.replace(folder / f"member-{standing.name}")

    def standings(self) -> dict[str, Standing]:
        """Return how far each replica has come, by name."""
        folder = self._current()
        found = {}
        with suppress(FileNotFoundError):
            for name in os.listdir(folder):
                fields = _read(folder / name) if name.startswith("member-") else None
                if fields is not None:
                    found[fields["name"]] = Standing(**fields)
        return found

    def forget(self, floor: int) -> None:
        """Forget what was agreed on about batches before one. All of them must be committed."""
        folder = self._current()
        if floor <= self._floor:
            return
        renamed = self._place / f"agreed-{floor:012d}"
        try:
            folder.rename(renamed)
        except OSError:
            self._folder = None  # another replica was faster
            return
        self._folder, self._floor = renamed, floor
        with suppress(FileNotFoundError):
            for name in os.listdir(renamed):
                if name[:12].isdigit() and int(name[:12]) < floor:
                    (renamed / name).unlink(missing_ok=True)

    def _get(self, batch: int, kind: str) -> dict[str, Any] | None:
        while True:
            folder = self._current()
            self._check(batch)
            fields = _read(folder / f"{batch:012d}.{kind}")
            if fields is not None or folder.exists():
                return fields
            self._folder = None

    def _make(self, batch: int, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Make what can be made only once, and return what stands."""
        while True:
            folder = self._current()
            self._check(batch)
            path = folder / f"{batch:012d}.{kind}"
            staged = folder / f".{uuid4().hex}"
            try:
                self._write(staged, fields)
                os.link(staged, path)
            except FileExistsError:
                pass
            except FileNotFoundError:
                self._folder = None
                continue
            finally:
                staged.unlink(missing_ok=True)
            found = _read(path)
            if found is not None:
                return found
            # The folder was renamed meanwhile. If the batch is history by now, what was made does not count.
            self._folder = None

    def _check(self, batch: int) -> None:
        if batch < self._floor:
            raise OutdatedError(
                f"batch {batch} is history: the replicas have agreed on all batches before {self._floor}"
            )

    def _current(self) -> Path:
        if self._folder is None and self._find() is None:
            raise JobFailedError(f"{self._place} is gone: put it back, or start from scratch (--fresh)")
        assert self._folder is not None, "it has just been found"
        return self._folder

    def _find(self) -> Path | None:
        """Look for the folder under its name of now."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                names = os.listdir(self._place)
            except FileNotFoundError:
                return None
            floors = [int(found[1]) for name in names if (found := _FOLDER.fullmatch(name)) is not None]
            if floors:
                self._floor = max(floors)
                self._folder = self._place / f"agreed-{self._floor:012d}"
                return self._folder
            if self._folder is None or time.monotonic() > deadline:
                return None
            time.sleep(_PAUSE)  # A list that is read while a folder is renamed may lack it.

    def _write(self, path: Path, fields: dict[str, Any]) -> None:
        body = json.dumps(fields, sort_keys=True)
        text = json.dumps({"crc": zlib.crc32(body.encode()), "body": body})
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        frame = json.loads(text)
        body = frame["body"]
        if zlib.crc32(body.encode()) == frame["crc"]:
            return dict(json.loads(body))
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise JobFailedError(f"{path} is damaged: put it back from a copy, or start from scratch (--fresh)")
