"""Nobody above the store sees an error of kazoo."""

from __future__ import annotations

import pytest
from kazoo import exceptions
from kazoo.handlers.threading import KazooTimeoutError

from penstock.coord.coordination_store import (
    Check,
    ConflictError,
    Create,
    Delete,
    DisconnectedError,
    ExistsError,
    MissingError,
    NotEmptyError,
    Operation,
    StoreError,
)
from penstock.coord.zookeeper_errors import transaction_error, translated


@pytest.mark.parametrize("kind", sorted(exceptions.EXCEPTIONS.values(), key=repr))
def test_every_error_of_the_servers_has_words(kind: type[Exception]) -> None:
    error = translated(kind(), "/jobs/a")
    assert isinstance(error, StoreError)
    assert "/jobs/a" in str(error)


@pytest.mark.parametrize(
    ("kind", "ours"),
    [
        (exceptions.NoNodeError, MissingError),
        (exceptions.NodeExistsError, ExistsError),
        (exceptions.BadVersionError, ConflictError),
        (exceptions.NotEmptyError, NotEmptyError),
        (exceptions.ConnectionLoss, DisconnectedError),
        (exceptions.SessionExpiredError, DisconnectedError),
        (exceptions.ConnectionClosedError, DisconnectedError),
        (exceptions.SessionMovedError, DisconnectedError),
        (KazooTimeoutError, DisconnectedError),
    ],
)
def test_each_says_what_a_caller_can_act_on(kind: type[Exception], ours: type[StoreError]) -> None:
    assert type(translated(kind(), "/a")) is ours


def test_the_refused_operation_is_the_one_with_a_reason_of_its_own() -> None:
    operations: list[Operation] = [Create("/a", b""), Check("/epoch", 7), Delete("/b")]
    before, after = exceptions.RolledBackError(), exceptions.RuntimeInconsistency()
    error = transaction_error(operations, [before, exceptions.BadVersionError(), after])
    assert error is not None
    assert error.operation == operations[1]
    assert str(error).startswith("refused to check /epoch at version 7: ")


def test_a_transaction_that_was_done_is_not_refused() -> None:
    assert transaction_error([Create("/a", b""), Check("/a", 0)], ["/a", True]) is None


def test_a_refusal_without_a_reason_is_still_one() -> None:
    assert transaction_error([Delete("/a")], [exceptions.RolledBackError()]) is not None
