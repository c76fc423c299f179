"""How a job has ended, as its last worker leaves it in the store."""

from __future__ import annotations

from penstock.cluster.codec import decode, encode
from penstock.cluster.documents import Result
from penstock.coord import paths
from penstock.coord.store import ConflictError, ExistsError, MissingError, Store


def put_result(store: Store, result: Result) -> None:
    """Write how a job has ended, unless a later revision has said so already."""
    path = f"{paths.RESULTS}/{result.job}"
    while True:
        known = store.get(path)
        try:
            if known is None:
                store.create(path, encode(result))
            elif decode(Result, known.data).revision <= result.revision:
                store.set(path, encode(result), version=known.version)
        except (ExistsError, ConflictError, MissingError):
            continue  # Another has been faster.
        return
