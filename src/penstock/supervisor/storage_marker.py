"""The mark of the cluster that a storage belongs to.

``cluster.json`` in the storage holds the id of the cluster and is written once: two clusters on one storage
would take over each other's jobs.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from uuid import uuid4

from penstock.daemon.step_loop import FatalError
from penstock.local_files import sync

MARKER = "cluster.json"
_FORMAT = "penstock.cluster"


class ForeignStorageError(FatalError):
    """A storage belongs to another cluster, or its marker cannot be read."""


def claim_storage(storage: Path, cluster: str) -> None:
    """Mark a storage with the id of a cluster. Raises ForeignStorageError if it belongs to another."""
    path = storage / MARKER
    owner = _read(path)
    if owner is None:
        _create(path, cluster)
        owner = _read(path)
    if owner != cluster:
        raise ForeignStorageError(
            f"the storage {storage} belongs to another cluster ({owner}; this one is {cluster}), and two"
            " clusters must not share one: give this one a storage of its own (--storage). If the other"
            f" cluster is gone for good, remove {path} to go on from its jobs' data here"
        )


def _read(path: Path) -> str | None:
    """Return the id of the cluster that a storage belongs to; None if it has no marker."""
    try:
        content = json.loads(path.read_bytes())
        if content["format"] == _FORMAT and isinstance(content["id"], str):
            return content["id"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        pass
    raise ForeignStorageError(
        f"{path} does not say which cluster the storage belongs to: restore it from a copy, or remove it if"
        " no other cluster uses the storage"
    )


def _create(path: Path, cluster: str) -> None:
    """Write the marker unless another supervisor was faster: a link never replaces a file."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.{uuid4().hex}")
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"format": _FORMAT, "id": cluster}, file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(staged, path)
        except FileExistsError:
            return
        sync(path.parent)
    finally:
        staged.unlink(missing_ok=True)
