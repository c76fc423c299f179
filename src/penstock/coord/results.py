"""How a job has ended, as its last worker leaves it in the store."""

from __future__ import annotations

from penstock.cluster.codec import DocumentError, decode, encode
from penstock.cluster.documents import Result
from penstock.coord import paths
from penstock.coord.store import ConflictError, ExistsError, MissingError, Store
from penstock.logs import get_logger

_log = get_logger(__name__)


def put_result(store: Store, result: Result) -> None:
    """Write how a job has ended, unless a later revision has said so already.

    A result that cannot be read is left as it is: it may be that of a later revision.
    """
    path = f"{paths.RESULTS}/{result.job}"
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
