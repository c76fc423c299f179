"""Sessions, in every store."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from store_support import Calls, Servers, gets

from penstock.coord.coordination_store import Create, DisconnectedError, Session, StoreError
from support.waiting import eventually


class SessionCases:
    """What a session keeps, and what it says when it ends."""

    def test_ephemeral_nodes_belong_to_the_session_and_go_when_it_is_closed(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        store.create("/nodes/a", b"a", ephemeral=True)
        assert gets(other, "/nodes/a").owner == store.session_id != other.session_id
        gone = Calls()
        other.get("/nodes/a", gone)
        store.close()
        eventually("the watch fires", lambda: gone.count == 1)
        assert other.get("/nodes/a") is None
        assert other.get("/nodes") is not None

    def test_an_ephemeral_node_has_nothing_below_it(self, servers: Servers) -> None:
        store = servers.open()
        store.create("/a", ephemeral=True)
        with pytest.raises(StoreError, match="ephemeral"):
            store.create("/a/b")

    def test_a_session_that_expires_is_followed_by_a_new_one(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        store.create("/nodes/a", ephemeral=True)
        store.create("/lasting")
        first = store.session_id
        heard: list[Session] = []
        store.listen(heard.append)
        fired = Calls()
        store.get("/lasting", fired)
        store.children("/lasting", fired)
        store.get("/not/there", fired)
        servers.expire(store)
        eventually("a new session", lambda: heard[-1:] == [Session.CONNECTED] and Session.LOST in heard)
        # A connection that breaks on the way is told, too, and so is one that comes back before the end.
        lost = heard.index(Session.LOST)
        assert heard[lost:] == [Session.LOST, Session.CONNECTED]
        assert set(heard[:lost]) <= {Session.SUSPENDED, Session.CONNECTED}
        eventually("all watchers are called", lambda: fired.count == 3)
        assert store.session is Session.CONNECTED
        assert store.session_id not in (0, first)
        assert other.get("/nodes/a") is None
        store.create("/nodes/a", ephemeral=True)
        assert gets(other, "/nodes/a").owner == store.session_id

    def test_a_connection_that_comes_back_in_time_costs_nothing(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        store.create("/nodes/a", ephemeral=True)
        first = store.session_id
        heard: list[Session] = []
        store.listen(heard.append)
        fired = Calls()
        store.get("/nodes/a", fired)
        servers.interrupt(store)
        eventually("the connection comes back", lambda: len(heard) == 2)
        assert heard == [Session.SUSPENDED, Session.CONNECTED]
        eventually("watchers are called, since nobody told of changes", lambda: fired.count == 1)
        assert store.session_id == first
        assert gets(other, "/nodes/a").owner == first

    def test_a_closed_store_does_nothing_more(self, servers: Servers) -> None:
        store = servers.open()
        heard: list[Session] = []
        store.listen(heard.append)
        store.close()
        store.close()
        assert store.session is Session.CLOSED
        eventually("the listener hears it, once", lambda: heard == [Session.CLOSED])
        asks: list[Callable[[], object]] = [
            lambda: store.get("/"),
            lambda: store.children("/"),
            lambda: store.create("/a"),
            lambda: store.set("/", b""),
            lambda: store.delete("/a"),
            lambda: store.transact([Create("/a", b"")]),
        ]
        for ask in asks:
            with pytest.raises(DisconnectedError):
                ask()
