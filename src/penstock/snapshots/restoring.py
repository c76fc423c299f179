"""Makes a job's home from the newest snapshot of it that is whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Event

from penstock.snapshots.client import SnapshotClient
from penstock.snapshots.store import SnapshotStore


@dataclass(frozen=True)
class Restored:
    """What a job's home was made from."""

    number: int
    """Of the snapshot."""
    batch: int
    """The last batch whose effects are in it; -1 before the first."""
    bytes_moved: int
    """Over the network."""
    skipped: tuple[str, ...]
    """Of each newer snapshot that could not be used, why not."""


def needs_restore(home: Path, revision: int) -> bool:
    """Whether what ``revision`` of a job left behind has still to be restored as ``home``."""
    raise NotImplementedError


def restore(
    home: Path,
    job: str,
    *,
    local: SnapshotStore | None = None,
    client: SnapshotClient | None = None,
    revision: int,
    stop: Event | None = None,
) -> Restored:
    """Make ``home`` from the newest whole snapshot of a job that ``local``, or else ``client`` has.

    Interrupted anywhere, it can be called again and goes on. Until it is done ``home`` is as it was; the one
    that was there is ``home.before-REVISION`` then. Raises NoWholeSnapshotError, which has changed nothing,
    TransferError and TransferStoppedError.
    """
    raise NotImplementedError
