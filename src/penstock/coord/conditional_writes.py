"""Conditional writes of workers: the result of a job and the status of its backup.

Each is a compare-and-set loop that does not overwrite a document of a later worker. A document that cannot be
read counts as later.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from penstock.cluster.assignment_documents import BackupStatus
from penstock.cluster.document_codec import DocumentError, decode, encode
from penstock.cluster.worker_documents import Result
from penstock.coord import store_paths
from penstock.coord.coordination_store import ConflictError, ExistsError, MissingError, Store
from penstock.process_logs.process_log import get_logger

_log = get_logger(__name__)


def put_result(store: Store, result: Result) -> None:
    """Write the result of a job, unless a later revision has written one.

    A result that cannot be read is not overwritten, because it may be that of a later revision.
    """
    path = f"{store_paths.RESULTS}/{result.job}"
    while True:
        known = store.get(path)
        try:
            if known is None:
                store.create(path, encode(result))
            elif _is_earlier(known.data, result):
                store.set(path, encode(result), version=known.version)
        except (ExistsError, ConflictError, MissingError):
            continue  # Another process has changed the node.
        return


def _is_earlier(data: bytes, than: Result) -> bool:
    try:
        return decode(Result, data).revision <= than.revision
    except DocumentError as error:
        _log.error("result not written: the existing one cannot be read", job=than.job, reason=str(error))
        return False


def read_backup_status(store: Store, job: str) -> BackupStatus | None:
    """Return the backup status of a job; None when there is none. Raises DocumentError."""
    node = store.get(f"{store_paths.KEPT}/{job}")
    return decode(BackupStatus, node.data) if node is not None else None


def write_backup_status(
    store: Store, kept: BackupStatus, refuse: Callable[[BackupStatus], bool] = lambda _: False
) -> bool:
    """Write a job's backup status; return False, without writing, if a later worker has written one.

    A status that cannot be read counts as later. ``refuse`` returns True for an existing status that must not
    be overwritten for another reason.
    """
    path = f"{store_paths.KEPT}/{kept.job}"
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
            continue  # Another process has changed the node.
        return True


def _is_later(data: bytes, than: BackupStatus, refuse: Callable[[BackupStatus], bool]) -> bool:
    with suppress(DocumentError):
        known = decode(BackupStatus, data)
        return (known.revision, known.attempt) > (than.revision, than.attempt) or refuse(known)
    return True
