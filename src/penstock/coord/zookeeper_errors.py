"""Translates exceptions of kazoo into errors of the store."""

from __future__ import annotations

from collections.abc import Sequence

from kazoo import exceptions as kazoo_exceptions
from kazoo.handlers.threading import KazooTimeoutError

from penstock.coord.coordination_store import (
    ConflictError,
    DisconnectedError,
    ExistsError,
    MissingError,
    NotEmptyError,
    Operation,
    StoreError,
    describe,
)

_DISCONNECTED = (
    kazoo_exceptions.ConnectionLoss,
    kazoo_exceptions.ConnectionDropped,
    kazoo_exceptions.SessionExpiredError,
    kazoo_exceptions.SessionMovedError,
    kazoo_exceptions.OperationTimeoutError,
    kazoo_exceptions.RequestTimeoutError,
    kazoo_exceptions.ThrottledOpError,
    kazoo_exceptions.NotReadOnlyCallError,
    KazooTimeoutError,
)
_TRANSLATIONS: tuple[tuple[type[Exception], type[StoreError], str], ...] = (
    (kazoo_exceptions.NoNodeError, MissingError, "there is no node {path}"),
    (kazoo_exceptions.NodeExistsError, ExistsError, "there is a node {path} already"),
    (kazoo_exceptions.BadVersionError, ConflictError, "{path} does not have the expected version"),
    (kazoo_exceptions.NotEmptyError, NotEmptyError, "{path} cannot be deleted: it has children"),
    (
        kazoo_exceptions.NoChildrenForEphemeralsError,
        StoreError,
        "{path} cannot be created: its parent is ephemeral and cannot have children",
    ),
    (
        kazoo_exceptions.NoAuthError,
        StoreError,
        "{path} belongs to a client with another key: it was not created by this cluster",
    ),
)


def translated(error: Exception, path: str) -> StoreError:
    """Return the error of the store for an exception of kazoo.

    >>> translated(kazoo_exceptions.NoNodeError(), "/jobs/a")
    MissingError('there is no node /jobs/a')
    """
    if isinstance(error, _DISCONNECTED):
        return DisconnectedError(
            f"ZooKeeper does not answer ({type(error).__name__}) to the request for {path}"
        )
    for kind, store_error, message in _TRANSLATIONS:
        if isinstance(error, kind):
            return store_error(message.format(path=path))
    return StoreError(f"ZooKeeper rejected the request for {path}: {type(error).__name__}: {error}")


def transaction_error(operations: Sequence[Operation], results: Sequence[object]) -> ConflictError | None:
    """Return the rejected operation of a transaction and the reason; None when the transaction succeeded.

    ZooKeeper marks the operations before it as rolled back, and those after it as not tried.
    """
    for operation, result in zip(operations, results, strict=False):
        if isinstance(result, Exception) and not isinstance(
            result, kazoo_exceptions.RolledBackError | kazoo_exceptions.RuntimeInconsistency
        ):
            cause = translated(result, operation.path)
            return ConflictError(f"refused to {describe(operation)}: {cause}", operation)
    if any(isinstance(result, Exception) for result in results):
        return ConflictError("ZooKeeper rejected the transaction without naming the operation that failed")
    return None
