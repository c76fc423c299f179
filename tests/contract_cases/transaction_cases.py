"""Transactions, in every store."""

from __future__ import annotations

import pytest
from store_support import Calls, Servers

from penstock.coord.coordination_store import Check, ConflictError, Create, Delete, Operation, Put, StoredNode


class TransactionCases:
    """All or nothing."""

    def test_all_of_it_is_done(self, servers: Servers) -> None:
        store = servers.open()
        store.create("/a")
        store.create("/b")
        store.transact(
            [
                Check("/a", 0),
                Put("/a", b"new", 0),
                Create("/a/c", b"c", ephemeral=True),
                Put("/a/c", b"cc"),
                Delete("/b", 0),
            ]
        )
        assert store.get("/a") == StoredNode(b"new", 1)
        assert store.get("/a/c") == StoredNode(b"cc", 1, store.session_id)
        assert store.get("/b") is None

    @pytest.mark.parametrize(
        "refused",
        [
            Check("/a", 3),
            Check("/missing", 0),
            Put("/a", b"", 3),
            Put("/missing", b""),
            Create("/a", b""),
            Create("/missing/b", b""),
            Create("/ephemeral/b", b""),
            Delete("/a", 3),
            Delete("/missing"),
            Delete("/full"),
        ],
        ids=repr,
    )
    def test_nothing_is_done_when_one_operation_is_refused(
        self, servers: Servers, refused: Operation
    ) -> None:
        store = servers.open()
        store.create("/a", b"old")
        store.create("/b", b"old")
        store.create("/full/below")
        store.create("/ephemeral", ephemeral=True)
        before = {path: store.get(path) for path in ("/a", "/b", "/full", "/ephemeral")}
        fired = Calls()
        store.get("/b", fired)
        store.children("/", fired)
        with pytest.raises(ConflictError, match=refused.path) as caught:
            store.transact(
                [Put("/b", b"new"), Create("/new", b""), Check("/b", 1), refused, Create("/newer", b"")]
            )
        assert caught.value.operation == refused
        assert {path: store.get(path) for path in before} == before
        assert store.children("/") == ["a", "b", "ephemeral", "full"]
        assert fired.count == 0

    def test_no_operation_is_nothing(self, servers: Servers) -> None:
        servers.open().transact([])
