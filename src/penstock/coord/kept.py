"""Where the data of a job is that is with its node, as its worker leaves word of it in the store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from penstock.cluster.codec import DocumentError, decode, encode
from penstock.cluster.documents import BackupStatus
from penstock.coord import paths
from penstock.coord.store import ConflictError, ExistsError, MissingError, Store


def read_backup_status(store: Store, job: str) -> BackupStatus | None:
    """Return what is known of a job's data; None when nothing is. Raises DocumentError."""
    node = store.get(f"{paths.KEPT}/{job}")
    return decode(BackupStatus, node.data) if node is not None else None


def write_backup_status(
    store: Store, kept: BackupStatus, refuse: Callable[[BackupStatus], bool] = lambda _: False
) -> bool:
    """Write where a job's data is, unless a later worker has said so already: False then.

    What cannot be read may have been said by a later worker.
    ``refuse`` may have other objections to what is there.
    """
    path = f"{paths.KEPT}/{kept.job}"
    while True:
        node = store.get(path)
        try:
            if node is None:
                store.create(path, encode(kept))
            elif _is_later(node.data, kept, refuse):
                return False
            else:
                store.set(path, encode(kept), version=node.version)
        except (ExistsError, ConflictError, MissingError):
            continue  # Another has been faster.
        return True


def _is_later(data: bytes, than: BackupStatus, refuse: Callable[[BackupStatus], bool]) -> bool:
    with suppress(DocumentError):
        known = decode(BackupStatus, data)
        return (known.revision, known.attempt) > (than.revision, than.attempt) or refuse(known)
    return True
