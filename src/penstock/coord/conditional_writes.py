"""Writes of workers that do not overwrite a later document.

How a job has ended, and the status of its backup. Compare-and-set in a loop; what cannot be read counts as
later.
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
    """Write how a job has ended, unless a later revision has said so already.

    A result that cannot be read is left as it is: it may be that of a later revision.
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
            continue  # Another has been faster.
        return


def _is_earlier(data: bytes, than: Result) -> bool:
    try:
        return decode(Result, data).revision <= than.revision
    except DocumentError as error:
        _log.error("result not written: what is there cannot be read", job=than.job, reason=str(error))
        return False


def read_backup_status(store: Store, job: str) -> BackupStatus | None:
    """Return what is known of a job's data; None when nothing is. Raises DocumentError."""
    node = store.get(f"{store_paths.KEPT}/{job}")
    return decode(BackupStatus, node.data) if node is not None else None


def write_backup_status(
    store: Store, kept: BackupStatus, refuse: Callable[[BackupStatus], bool] = lambda _: False
) -> bool:
    """Write where a job's data is, unless a later worker has said so already: False then.

    What cannot be read may have been said by a later worker.
    ``refuse`` may have other objections to what is there.
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
            continue  # Another has been faster.
        return True


def _is_later(data: bytes, than: BackupStatus, refuse: Callable[[BackupStatus], bool]) -> bool:
    with suppress(DocumentError):
        known = decode(BackupStatus, data)
        return (known.revision, known.attempt) > (than.revision, than.attempt) or refuse(known)
    return True
