"""Translates exceptions of kazoo into those of the store."""

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

_AWAY = (
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
_WORDS: tuple[tuple[type[Exception], type[StoreError], str], ...] = (
    (kazoo_exceptions.NoNodeError, MissingError, "there is no node {path}"),
    (kazoo_exceptions.NodeExistsError, ExistsError, "there is a node {path} already"),
    (kazoo_exceptions.BadVersionError, ConflictError, "{path} does not have the version that was expected"),
    (kazoo_exceptions.NotEmptyError, NotEmptyError, "{path} cannot be deleted: there are nodes below it"),
    (
        kazoo_exceptions.NoChildrenForEphemeralsError,
        StoreError,
        "the node above {path} is ephemeral: there can be no node below it",
    ),
    (
        kazoo_exceptions.NoAuthError,
        StoreError,
        "{path} belongs to a client with another key: it was not created by this cluster",
    ),
)


def translated(error: Exception, path: str) -> StoreError:
    """Return what a caller is told when kazoo raises.

    >>> translated(kazoo_exceptions.NoNodeError(), "/jobs/a")
    MissingError('there is no node /jobs/a')
    """
    if isinstance(error, _AWAY):
        return DisconnectedError(f"ZooKeeper does not answer ({type(error).__name__}), asked about {path}")
    for kind, ours, words in _WORDS:
        if isinstance(error, kind):
            return ours(words.format(path=path))
    return StoreError(f"ZooKeeper refused what was asked about {path}: {type(error).__name__}: {error}")


def refused(operations: Sequence[Operation], results: Sequence[object]) -> ConflictError | None:
    """Return which operation of a transaction was refused and why; None when all of it was done.

    ZooKeeper marks those before it as rolled back, and those after it as not tried.
    """
    for operation, result in zip(operations, results, strict=False):
        if isinstance(result, Exception) and not isinstance(
            result, kazoo_exceptions.RolledBackError | kazoo_exceptions.RuntimeInconsistency
        ):
            cause = translated(result, operation.path)
            return ConflictError(f"refused to {describe(operation)}: {cause}", operation)
    if any(isinstance(result, Exception) for result in results):
        return ConflictError("ZooKeeper refused the transaction and did not say which operation was why")
    return None
