"""Nodes, in every store."""

from __future__ import annotations

import pytest
from store_support import Servers, gets

from penstock.coord.coordination_store import (
    LARGEST,
    ConflictError,
    Create,
    ExistsError,
    MissingError,
    NotEmptyError,
    Put,
    StoredNode,
    StoreError,
    TooLargeError,
)


class NodeCases:
    """Reading and writing nodes."""

    def test_a_node_that_was_created_is_read_as_it_was_written(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        store.create("/jobs", bytes(range(256)))
        assert other.get("/jobs") == StoredNode(bytes(range(256)), 0)
        assert gets(store, "/jobs").owner == 0

    def test_what_is_not_there_is_none(self, servers: Servers) -> None:
        store = servers.open()
        assert store.get("/nothing/here") is None
        assert store.children("/nothing") == []

    def test_the_root_is_there(self, servers: Servers) -> None:
        store = servers.open()
        assert store.get("/") is not None
        store.create("/b")
        store.create("/a/below")
        assert store.children("/") == ["a", "b"]
        assert store.children("/a") == ["below"]

    def test_nodes_above_are_made_as_needed(self, servers: Servers) -> None:
        store = servers.open()
        store.create("/a/b/c", b"deep", ephemeral=True)
        assert store.get("/a") == StoredNode(b"", 0)
        assert store.get("/a/b") == StoredNode(b"", 0)

    def test_a_node_is_not_created_twice(self, servers: Servers) -> None:
        store = servers.open()
        store.create("/a", b"first")
        with pytest.raises(ExistsError, match="/a"):
            store.create("/a", b"second")
        assert gets(store, "/a").data == b"first"

    def test_each_set_raises_the_version(self, servers: Servers) -> None:
        store = servers.open()
        store.create("/a")
        assert store.set("/a", b"one") == 1
        assert store.set("/a", b"two", version=1) == 2
        with pytest.raises(ConflictError, match="/a"):
            store.set("/a", b"three", version=1)
        assert store.get("/a") == StoredNode(b"two", 2)

    def test_what_is_not_there_cannot_be_set_or_deleted(self, servers: Servers) -> None:
        store = servers.open()
        with pytest.raises(MissingError, match="/a"):
            store.set("/a", b"")
        with pytest.raises(MissingError, match="/a"):
            store.delete("/a")

    def test_delete_looks_at_the_version_and_at_what_is_below(self, servers: Servers) -> None:
        store = servers.open()
        store.create("/a/b")
        with pytest.raises(NotEmptyError, match="/a"):
            store.delete("/a")
        store.set("/a/b", b"")
        with pytest.raises(ConflictError, match="/a/b"):
            store.delete("/a/b", version=0)
        store.delete("/a/b", version=1)
        store.delete("/a")
        assert store.get("/a") is None

    def test_a_node_that_is_made_again_starts_at_version_0(self, servers: Servers) -> None:
        store = servers.open()
        store.create("/a")
        store.set("/a", b"")
        store.delete("/a")
        store.create("/a")
        assert gets(store, "/a").version == 0

    def test_a_node_holds_900_kilobytes(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        store.create("/large", b"\xff" * 900_000)
        assert gets(other, "/large").data == b"\xff" * 900_000
        store.transact([Put("/large", b"\x00" * 900_000, 0)])
        assert gets(other, "/large").data == b"\x00" * 900_000

    def test_what_is_too_large_is_refused_and_costs_nothing_else(self, servers: Servers) -> None:
        store = servers.open()
        session_id = store.session_id
        store.create("/a")
        with pytest.raises(TooLargeError, match="/b"):
            store.create("/b", bytes(LARGEST + 1))
        with pytest.raises(TooLargeError, match="/a"):
            store.set("/a", bytes(LARGEST + 1))
        with pytest.raises(TooLargeError, match="transaction"):
            store.transact([Put("/a", bytes(LARGEST // 2 + 1)), Create("/b", bytes(LARGEST // 2 + 1))])
        assert store.get("/a") == StoredNode(b"", 0)
        assert store.session_id == session_id

    @pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b", "/.", "/a/..", "/a\x00", "/a\nb"])
    def test_what_is_no_path_is_refused(self, servers: Servers, path: str) -> None:
        store = servers.open()
        for ask in (store.get, store.children, store.create, store.delete):
            with pytest.raises(StoreError, match="is not a path"):
                ask(path)
        with pytest.raises(StoreError, match="is not a path"):
            store.transact([Create(path, b"")])
