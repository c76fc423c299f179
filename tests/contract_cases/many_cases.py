"""Reading several nodes together, in every store."""

from __future__ import annotations

import pytest
from store_support import Calls, Servers

from penstock.coord.coordination_store import DisconnectedError, StoredNode, StoreError
from support.waiting import eventually


class ManyCases:
    """What is read together is what would be read one by one."""

    def test_several_nodes_are_answered_in_the_order_asked(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        for number in range(30):
            other.create(f"/jobs/{number}", b"%d" % number)
        wanted = [f"/jobs/{number}" for number in reversed(range(30))]
        found = list(store.get_many([(path, None) for path in ["/missing", *wanted, "/missing/too"]]))
        nodes = [StoredNode(b"%d" % number, 0) for number in reversed(range(30))]
        assert found == [None, *nodes, None]
        assert list(store.get_many([])) == []

    def test_the_names_below_several_nodes_are_answered_in_the_order_asked(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        for path in ("/workers/b/2-1", "/workers/b/1-1", "/workers/a/1-1"):
            other.create(path)
        asked = ["/workers/b", "/missing", "/workers/a", "/workers", "/workers/a/1-1"]
        found = list(store.children_many([(path, None) for path in asked]))
        assert found == [["1-1", "2-1"], [], ["1-1"], ["a", "b"], []]
        assert list(store.children_many([])) == []

    def test_each_of_them_is_watched_and_those_that_are_not_there_as_well(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        other.create("/jobs/a")
        other.create("/jobs/b")
        data = {path: Calls() for path in ("/jobs/a", "/jobs/b", "/jobs/c")}
        names = {path: Calls() for path in ("/jobs", "/workers")}
        assert list(store.get_many(list(data.items()))) == [StoredNode(b"", 0), StoredNode(b"", 0), None]
        assert list(store.children_many(list(names.items()))) == [["a", "b"], []]
        other.set("/jobs/b", b"new")
        other.create("/jobs/c")
        other.create("/workers/a")
        told = (data["/jobs/b"], data["/jobs/c"], names["/jobs"], names["/workers"])
        eventually("four watches fire", lambda: [calls.count for calls in told] == [1, 1, 1, 1])
        assert data["/jobs/a"].count == 0

    def test_what_is_no_path_is_refused_among_others(self, servers: Servers) -> None:
        store = servers.open()
        store.create("/a")
        for ask in (store.get_many, store.children_many):
            with pytest.raises(StoreError, match="is not a path"):
                list(ask([("/a", None), ("b", None)]))

    def test_they_are_read_after_the_connection_was_broken(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        other.create("/a", b"1")
        servers.interrupt(store)

        def is_read() -> bool:
            try:
                return list(store.get_many([("/a", None), ("/b", None)])) == [StoredNode(b"1", 0), None]
            except DisconnectedError:
                return False

        eventually("the nodes are read", is_read)
