"""Makes a job's home from the newest snapshot of it that is whole.

Beside ``home`` is ``restoring`` while this goes on: ``objects`` that were fetched, the ``home`` that is made,
and ``ready.json`` as soon as that is whole. From then on it is only renamed into place, and ``restored.json``
says that it is there. Whoever is interrupted anywhere finds out from these files how to go on.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event

from penstock.private_files import sync
from penstock.snapshots.building import build
from penstock.snapshots.client import SnapshotClient, go_on
from penstock.snapshots.durable import disk_full_errors, make_private, write_durably
from penstock.snapshots.errors import NoWholeSnapshotError, SnapshotDamagedError, SnapshotMissingError
from penstock.snapshots.log_folders import make_log_folders
from penstock.snapshots.manifest import Manifest
from penstock.snapshots.store import SnapshotStore

MARKER = "restored.json"
"""Beside a home: what it was restored from."""
_BEFORE = ".before-"


@dataclass(frozen=True)
class Restored:
    """What a job's home was made from."""

    revision: int
    """The revision of the job that left it."""
    number: int
    """Of the snapshot."""
    batch: int
    """The last batch whose effects are in it; -1 before the first."""
    bytes_moved: int
    """Over the network, by the try that made it."""
    skipped: tuple[str, ...] = ()
    """Of each newer snapshot that could not be used, why not."""


def needs_restore(home: Path, revision: int) -> bool:
    """Whether what ``revision`` of a job left behind has still to be restored as ``home``."""
    done = restored(home)
    return done is None or done.revision < revision or not home.is_dir()


def restored(home: Path) -> Restored | None:
    """Return what a home was last restored from; None if it never was."""
    return _read(home.with_name(MARKER))


def not_restored(home: Path) -> None:
    """Have a home restored again that nobody has worked on since it was: there is a newer snapshot."""
    home.with_name(MARKER).unlink(missing_ok=True)


def restore(
    home: Path,
    job: str,
    *,
    local: SnapshotStore | None = None,
    client: SnapshotClient | None = None,
    revision: int,
    stop: Event | None = None,
) -> Restored:
    """Make ``home`` from the newest whole snapshot: of ``local`` if this node keeps it, else by ``client``.

    ``revision`` is the one that left the snapshot. Interrupted anywhere, it can be called again and goes on.
    Until it is done ``home`` is as it was; the one that was there is ``home.before-REVISION`` then. Raises
    NoWholeSnapshotError, which has changed nothing, TransferError and TransferStoppedError.
    """
    place = home.with_name("restoring")
    ready, built = place / "ready.json", place / home.name
    with disk_full_errors():
        make_private(place)
    made = _read(ready)
    if made is None or made.revision != revision or not (built.is_dir() or home.is_dir()):
        ready.unlink(missing_ok=True)
        source = _Source(job, local, client, place / "objects", stop)
        made = _make(built, revision, source)
        _note(ready, made)
    _put_in_place(built, home, revision)
    _note(home.with_name(MARKER), made)
    _clear(home, place)
    return made


class _Source:
    """Where a job's snapshots come from."""

    def __init__(
        self,
        job: str,
        local: SnapshotStore | None,
        client: SnapshotClient | None,
        objects: Path,
        stop: Event | None,
    ) -> None:
        self.job = job
        self._local = local
        self._client = client
        self._objects = objects
        self._stop = stop
        self._before: int | None = None
        self.skipped: list[str] = []
        self.name = "this node" if local is not None or client is None else client.url

    @property
    def moved(self) -> int:
        """How many bytes were fetched so far."""
        return self._client.fetched if self._local is None and self._client is not None else 0

    def next(self) -> Manifest | None:
        """The newest snapshot that was not tried yet."""
        source = self._local if self._local is not None else self._client
        if source is None:
            return None
        listed = source.manifests(self.job, before=self._before, limit=1)
        self.skipped.extend(listed.damaged)
        for manifest in listed.manifests:
            self._before = manifest.number
            return manifest
        return None

    def build(self, folder: Path, manifest: Manifest) -> None:
        """Make the files of a snapshot. Raises SnapshotMissingError and SnapshotDamagedError."""
        go_on(self._stop)
        shutil.rmtree(folder, ignore_errors=True)
        local = self._local
        if local is not None:
            build(folder, manifest, lambda piece: local.path(self.job, piece.sha256))
        elif self._client is not None:
            self._client.fetch(self.job, manifest, self._objects, self._stop)
            build(folder, manifest, lambda piece: self._objects / piece.sha256)


def _make(built: Path, revision: int, source: _Source) -> Restored:
    before = source.moved
    while (manifest := source.next()) is not None:
        try:
            source.build(built, manifest)
        except (SnapshotMissingError, SnapshotDamagedError) as error:
            source.skipped.append(f"snapshot {manifest.number}: {error}")
            continue
        make_log_folders(built)
        moved = source.moved - before
        return Restored(revision, manifest.number, manifest.batch, moved, tuple(source.skipped))
    shutil.rmtree(built, ignore_errors=True)
    raise NoWholeSnapshotError(source.job, source.name, source.skipped)


def _put_in_place(built: Path, home: Path, revision: int) -> None:
    """Rename what was made, unless that was done before."""
    if not built.is_dir():
        return
    if home.is_dir():
        aside = home.with_name(f"{home.name}{_BEFORE}{revision}")
        shutil.rmtree(aside, ignore_errors=True)
        home.rename(aside)
    built.rename(home)
    sync(home.parent)


def _clear(home: Path, place: Path) -> None:
    """Remove what is of no more use: all but the last of the homes that were set aside."""
    prefix = f"{home.name}{_BEFORE}"
    names = [path.name.removeprefix(prefix) for path in home.parent.iterdir() if path.name.startswith(prefix)]
    for revision in sorted(int(name) for name in names if name.isdigit())[:-1]:
        shutil.rmtree(home.with_name(f"{prefix}{revision}"), ignore_errors=True)
    shutil.rmtree(place, ignore_errors=True)


def _note(path: Path, made: Restored) -> None:
    write_durably(path, json.dumps(asdict(made), sort_keys=True).encode())


def _read(path: Path) -> Restored | None:
    """Read a note; None when there is none, or none that can be understood."""
    try:
        content = json.loads(path.read_bytes())
        made = Restored(**{**content, "skipped": tuple(content["skipped"])})
        return made if type(made.revision) is int else None
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        return None
