"""The mirror, of every store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from store_support import Calls, Servers, has_stale_nodes

from penstock.coord.coordination_store import Create, Delete, DisconnectedError, StoredNode
from penstock.coord.store_mirror import StoreMirror
from support.waiting import eventually


class MirrorCases:
    """The copy becomes what the store has."""

    def test_it_follows_all_changes(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        other.create("/jobs/a", b"a")
        other.create("/workers/a/1-1", b"w", ephemeral=True)
        wake = Calls()
        mirror = StoreMirror(store, ["/jobs", "/workers", "/status"], wake)
        assert has_stale_nodes(mirror)
        mirror.refresh()
        assert not has_stale_nodes(mirror)
        assert mirror.children("/workers") == ["a"]
        assert mirror.get("/workers/a/1-1") == StoredNode(b"w", 0, other.session_id)
        assert mirror.get("/status") is None
        steps: list[Callable[[], object]] = [
            lambda: other.set("/jobs/a", b"b"),
            lambda: other.create("/status/a", b"s"),
            lambda: other.transact([Delete("/jobs/a"), Create("/jobs/b", b"")]),
            other.close,
        ]
        for step in steps:
            step()
            expected = {path: store.get(path) for path in ("/jobs/a", "/jobs/b", "/status/a")}
            eventually(f"the copy is {expected}", partial(_is_exact, mirror, expected))
        eventually("the worker is gone", lambda: _is_exact(mirror, {"/workers/a/1-1": None}))
        assert mirror.children("/workers/a") == []
        assert mirror.children("/jobs") == ["b"]
        assert wake.count >= len(steps)

    def test_it_is_exact_after_the_session_was_lost(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        other.create("/jobs/a", b"a")
        wake = Calls()
        mirror = StoreMirror(store, ["/jobs"], wake)
        mirror.refresh()
        servers.expire(store)
        eventually("it is woken", lambda: wake.count > 0)
        other.set("/jobs/a", b"new")
        other.create("/jobs/b")
        eventually(
            "exact",
            lambda: _is_exact(mirror, {"/jobs/a": StoredNode(b"new", 1), "/jobs/b": StoredNode(b"", 0)}),
        )
        other.delete("/jobs/b")
        eventually("its new watches work", lambda: _is_exact(mirror, {"/jobs/b": None}))


def _is_exact(mirror: StoreMirror, expected: dict[str, StoredNode | None]) -> bool:
    try:
        mirror.refresh()
    except DisconnectedError:
        return False
    return {path: mirror.get(path) for path in expected} == expected
