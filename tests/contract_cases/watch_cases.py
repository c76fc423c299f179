"""Watches, in every store."""

from __future__ import annotations

from collections.abc import Callable

from store_support import Calls, Servers

from penstock.coord.coordination_store import Create
from support.waiting import eventually


class WatchCases:
    """Whoever reads can be told when it changes, once."""

    def test_a_watch_of_a_node_fires_once_when_it_is_created_set_or_deleted(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        steps: list[Callable[[], object]] = [
            lambda: other.create("/a"),
            lambda: other.set("/a", b"1"),
            lambda: other.delete("/a"),
            lambda: other.transact([Create("/a", b"")]),
        ]
        for number, step in enumerate(steps):
            fired = Calls()
            store.get("/a", fired)
            step()
            eventually("the watch fires", lambda fired=fired: fired.count == 1)  # type: ignore[misc]
            other.create(f"/unrelated/n-{number}")
            if other.get("/a") is not None:
                other.set("/a", b"again")
            assert fired.count == 1

    def test_a_watch_of_names_fires_once_when_one_comes_or_goes(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        steps: list[Callable[[], object]] = [
            lambda: other.create("/a"),
            lambda: other.create("/a/b"),
            lambda: other.delete("/a/b"),
            lambda: other.delete("/a"),
        ]
        for step in steps:
            fired = Calls()
            store.children("/a", fired)
            step()
            eventually("the watch fires", lambda fired=fired: fired.count == 1)  # type: ignore[misc]
        other.create("/a/c")
        other.create("/a/d")
        marker = Calls()
        store.get("/marker", marker)
        other.create("/marker")
        eventually("the marker's watch fires", lambda: marker.count == 1)
        assert fired.count == 1

    def test_a_watch_of_names_does_not_fire_for_data_or_for_what_is_further_below(
        self, servers: Servers
    ) -> None:
        store, other = servers.open(), servers.open()
        other.create("/a/b")
        fired, marker = Calls(), Calls()
        assert store.children("/a", fired) == ["b"]
        store.get("/marker", marker)
        other.set("/a", b"new")
        other.set("/a/b", b"new")
        other.create("/a/b/c")
        other.create("/marker")
        eventually("the marker's watch fires", lambda: marker.count == 1)
        assert fired.count == 0

    def test_a_watch_of_a_node_does_not_fire_for_what_is_below(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        other.create("/a")
        fired, marker = Calls(), Calls()
        store.get("/a", fired)
        store.get("/marker", marker)
        other.create("/a/b")
        other.create("/marker")
        eventually("the marker's watch fires", lambda: marker.count == 1)
        assert fired.count == 0

    def test_each_of_several_watchers_is_called(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        watchers = [Calls() for _ in range(3)]
        for watcher in watchers:
            store.get("/a", watcher)
        other.create("/a")
        eventually("all are called", lambda: [watcher.count for watcher in watchers] == [1, 1, 1])
