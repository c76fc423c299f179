"""The mirror is exact, reads no more than it must, and leaves no watches behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from store_support import Calls, has_stale_nodes

from penstock.coord.coordination_store import (
    DisconnectedError,
    Read,
    Store,
    StoredNode,
    StoreError,
    Watcher,
    below,
)
from penstock.coord.store_mirror import StoreMirror
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore


class CountingStore(MemoryStore):
    """Counts what is read, and fails when it is told to."""

    def __init__(self, ensemble: MemoryEnsemble, deliver: Callable[[Watcher], None] | None = None) -> None:
        super().__init__(ensemble, **({} if deliver is None else {"deliver": deliver}))  # type: ignore[arg-type]
        self.reads: list[str] = []
        self.fail_after: int | None = None

    def _count(self, what: str) -> None:
        if self.fail_after is not None and len(self.reads) >= self.fail_after:
            raise DisconnectedError("told to fail")
        self.reads.append(what)

    def get(self, path: str, watch: Watcher | None = None) -> StoredNode | None:
        self._count(f"get {path}")
        return super().get(path, watch)

    def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        self._count(f"children {path}")
        return super().children(path, watch)


def _tree(
    get: Callable[[str], StoredNode | None], names: Callable[[str], list[str]], root: str
) -> dict[str, StoredNode]:
    node = get(root)
    found = {} if node is None else {root: node}
    for name in names(root):
        found |= _tree(get, names, below(root, name))
    return found


def _mirrored(mirror: StoreMirror, roots: Sequence[str]) -> dict[str, StoredNode]:
    return {path: node for root in roots for path, node in _tree(mirror.get, mirror.children, root).items()}


def _stored(store: Store, roots: Sequence[str]) -> dict[str, StoredNode]:
    return {path: node for root in roots for path, node in _tree(store.get, store.children, root).items()}


def test_one_change_among_a_thousand_nodes_costs_one_read() -> None:
    ensemble = MemoryEnsemble()
    other, store = MemoryStore(ensemble), CountingStore(ensemble)
    for number in range(1000):
        other.create(f"/nodes/{number:04d}", b"", ephemeral=number % 2 == 0)
    wake = Calls()
    mirror = StoreMirror(store, ["/nodes"], wake)
    mirror.refresh()
    assert len(mirror.children("/nodes")) == 1000
    # An ephemeral node has nothing below it, so nobody needs to ask.
    assert len(store.reads) == 2 + 1000 + 500
    costs: list[tuple[Callable[[], object], list[str]]] = [
        (lambda: None, []),
        (lambda: other.set("/nodes/0500", b"new"), ["get /nodes/0500"]),
        (lambda: other.set("/nodes/0503", b"new"), ["get /nodes/0503"]),
        (lambda: other.delete("/nodes/0501"), ["children /nodes"]),
        (
            lambda: other.create("/nodes/1000"),
            ["children /nodes", "get /nodes/1000", "children /nodes/1000"],
        ),
    ]
    for change, expected in costs:
        store.reads.clear()
        change()
        assert has_stale_nodes(mirror) == bool(expected)
        mirror.refresh()
        assert store.reads == expected
        assert not has_stale_nodes(mirror)
    assert _mirrored(mirror, ["/nodes"]) == _stored(other, ["/nodes"])


def test_a_subtree_that_is_gone_costs_one_read() -> None:
    ensemble = MemoryEnsemble()
    other, store = MemoryStore(ensemble), CountingStore(ensemble)
    other.create("/workers/a/1-1")
    mirror = StoreMirror(store, ["/workers"], Calls())
    mirror.refresh()
    for gone in (["/workers/a/1-1", "/workers/a"], ["/workers"]):
        store.reads.clear()
        for path in gone:
            other.delete(path)
        mirror.refresh()
        assert len(store.reads) == 1
        assert mirror.get(gone[0]) is None


def test_it_keeps_the_old_copy_and_stays_dirty_while_the_servers_are_away() -> None:
    ensemble = MemoryEnsemble()
    other, store = MemoryStore(ensemble), CountingStore(ensemble)
    for name in "abc":
        other.create(f"/jobs/{name}", b"old")
    mirror = StoreMirror(store, ["/jobs"], Calls())
    mirror.refresh()
    before = _mirrored(mirror, ["/jobs"])
    store.disconnect()
    for name in "abc":
        other.set(f"/jobs/{name}", b"new")
    for _ in range(2):
        with pytest.raises(DisconnectedError):
            mirror.refresh()
        assert has_stale_nodes(mirror)
        assert _mirrored(mirror, ["/jobs"]) == before
    store.reconnect()
    mirror.refresh()
    assert not has_stale_nodes(mirror)
    assert _mirrored(mirror, ["/jobs"]) == _stored(other, ["/jobs"])


def test_a_refresh_that_breaks_off_goes_on_where_it_was() -> None:
    ensemble = MemoryEnsemble()
    other, store = MemoryStore(ensemble), CountingStore(ensemble)
    for name in "abc":
        other.create(f"/jobs/{name}", b"")
    mirror = StoreMirror(store, ["/jobs"], Calls())
    for limit in range(8):
        store.fail_after = limit
        with pytest.raises(DisconnectedError):
            mirror.refresh()
    store.fail_after = None
    mirror.refresh()
    assert len(store.reads) == 8
    assert _mirrored(mirror, ["/jobs"]) == _stored(other, ["/jobs"])


def test_a_change_right_after_a_read_is_not_missed() -> None:
    ensemble = MemoryEnsemble()
    other = MemoryStore(ensemble)
    other.create("/jobs/a", b"old")

    class Meanwhile(MemoryStore):
        """Somebody changes a node between this read and what the mirror makes of it."""

        changed = False

        def get(self, path: str, watch: Watcher | None = None) -> StoredNode | None:
            node = super().get(path, watch)
            if path == "/jobs/a" and not self.changed:
                self.changed = True
                other.set("/jobs/a", b"new")
            return node

    mirror = StoreMirror(Meanwhile(ensemble), ["/jobs"], Calls())
    mirror.refresh()
    assert has_stale_nodes(mirror)
    mirror.refresh()
    assert mirror.get("/jobs/a") == StoredNode(b"new", 1)


def test_news_of_what_is_gone_or_was_read_since_wake_nobody() -> None:
    ensemble = MemoryEnsemble()
    news: list[Watcher] = []
    other, store = MemoryStore(ensemble), CountingStore(ensemble, news.append)
    other.create("/jobs/a", b"old", ephemeral=True)
    wake = Calls()
    mirror = StoreMirror(store, ["/jobs"], wake)
    mirror.refresh()
    other.delete("/jobs/a")
    of_the_node, of_its_parent = news
    of_its_parent()
    mirror.refresh()
    assert mirror.children("/jobs") == []
    other.create("/jobs/a", b"new", ephemeral=True)
    news[2]()
    mirror.refresh()
    assert mirror.get("/jobs/a") == StoredNode(b"new", 0, other.session_id)
    woken = wake.count
    of_the_node()
    assert not has_stale_nodes(mirror)
    other.delete("/jobs/a")
    news[4]()
    mirror.refresh()
    news[3]()
    assert not has_stale_nodes(mirror)
    assert wake.count == woken + 1


def test_a_root_below_another_is_followed_when_it_comes_back() -> None:
    ensemble = MemoryEnsemble()
    other, store = MemoryStore(ensemble), MemoryStore(ensemble)
    mirror = StoreMirror(store, ["/jobs", "/jobs/a"], Calls())
    for data in (b"1", b"2"):
        other.create("/jobs/a", data)
        mirror.refresh()
        assert mirror.get("/jobs/a") == StoredNode(data, 0)
        other.delete("/jobs/a")
        mirror.refresh()
        assert mirror.get("/jobs/a") is None


class BatchingStore(CountingStore):
    """Notes how many nodes are asked for at once."""

    def __init__(self, ensemble: MemoryEnsemble) -> None:
        super().__init__(ensemble)
        self.batches: list[int] = []

    def get_many(self, reads: Sequence[Read]) -> Iterator[StoredNode | None]:
        self.batches.append(len(reads))
        return super().get_many(reads)

    def children_many(self, reads: Sequence[Read]) -> Iterator[list[str]]:
        self.batches.append(len(reads))
        return super().children_many(reads)


def test_a_cold_mirror_asks_for_many_nodes_at_once() -> None:
    ensemble = MemoryEnsemble()
    other, store = MemoryStore(ensemble), BatchingStore(ensemble)
    for number in range(2000):
        other.create(f"/jobs/{number:04d}", b"")
    StoreMirror(store, ["/jobs"], Calls(), depths={"/jobs": 1}).refresh()
    assert sum(store.batches) == len(store.reads) == 2 + 2000
    assert len(store.batches) == 2 + 4, "requests for 500 nodes are sent together"


def test_names_below_the_last_level_are_not_asked_for() -> None:
    ensemble = MemoryEnsemble()
    other, store = MemoryStore(ensemble), CountingStore(ensemble)
    other.create("/workers/a/1-1")
    other.create("/epoch")
    mirror = StoreMirror(store, ["/workers", "/epoch"], Calls(), depths={"/workers": 2, "/epoch": 0})
    mirror.refresh()
    asked = [read for read in store.reads if read.startswith("children")]
    assert asked == ["children /workers", "children /workers/a"]
    assert mirror.get("/workers/a/1-1") == StoredNode(b"", 0)


def test_a_quiet_root_wakes_nobody_and_is_read_with_the_rest() -> None:
    ensemble = MemoryEnsemble()
    other, store, wake = MemoryStore(ensemble), MemoryStore(ensemble), Calls()
    other.create("/reports/n1", b"1")
    other.create("/reporters")
    mirror = StoreMirror(store, ["/reports", "/reporters"], wake, quiet=["/reports"])
    mirror.refresh()
    other.set("/reports/n1", b"2")
    other.create("/reports/n2")
    assert wake.count == 0
    mirror.refresh()
    assert (mirror.get("/reports/n1"), mirror.children("/reports")) == (StoredNode(b"2", 1), ["n1", "n2"])
    other.set("/reporters", b"new")
    assert wake.count == 1


def test_other_roots_can_be_followed_later() -> None:
    ensemble = MemoryEnsemble()
    other, store, wake = MemoryStore(ensemble), CountingStore(ensemble), Calls()
    for path in ("/workers/a/1-1", "/workers/b/1-1", "/jobs/a"):
        other.create(path)
    mirror = StoreMirror(store, ["/workers/a", "/jobs/a"], wake)
    mirror.refresh()
    assert (mirror.children("/workers"), mirror.children("/workers/a")) == (["a"], ["1-1"])
    store.reads.clear()
    mirror.follow(["/workers/b", "/jobs/a"])
    assert has_stale_nodes(mirror)
    assert mirror.get("/workers/a/1-1") is None
    mirror.refresh()
    assert store.reads == [
        "get /workers/b",
        "children /workers/b",
        "get /workers/b/1-1",
        "children /workers/b/1-1",
    ]
    assert (mirror.children("/workers"), mirror.children("/jobs")) == (["b"], ["a"])
    other.set("/workers/a/1-1", b"new")
    assert (wake.count, has_stale_nodes(mirror)) == (0, False), "it is followed no longer"
    other.set("/workers/b/1-1", b"new")
    assert wake.count == 1
    mirror.refresh()
    mirror.follow(["/workers/a", "/jobs/a"])
    mirror.refresh()
    assert mirror.get("/workers/a/1-1") == StoredNode(b"new", 1)


def test_who_subscribes_is_told_of_each_path_that_has_changed() -> None:
    ensemble = MemoryEnsemble()
    other, store = MemoryStore(ensemble), MemoryStore(ensemble)
    other.create("/jobs/a")
    other.create("/jobs/b")
    mirror = StoreMirror(store, ["/jobs"], Calls())
    mirror.refresh()
    changes = mirror.subscribe()
    assert changes.take() == {"/jobs", "/jobs/a", "/jobs/b"}
    assert changes.take() == set()
    other.set("/jobs/a", b"new")
    other.delete("/jobs/b")
    mirror.refresh()
    assert changes.take() == {"/jobs/a", "/jobs/b"}


_ALL = ["/r", "/r/a", "/r/b", "/r/a/x", "/r/a/y", "/s", "/s/a", "/s/a/x", "/other"]
_PATHS = st.sampled_from(_ALL)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["create", "ephemeral", "set", "delete"]), _PATHS),
        st.tuples(
            st.sampled_from(["deliver", "deliver all", "refresh", "fail", "cut", "mend", "expire", "down"]),
            st.just(""),
        ),
    ),
    max_size=60,
)


class _World:
    """A mirror, somebody who changes what it mirrors, and news that wait until they are delivered."""

    roots = ("/r", "/s", "/s/a")

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.news: list[Watcher] = []
        self.writer = MemoryStore(self.ensemble)
        self.store = CountingStore(self.ensemble, self.news.append)
        self.wake = Calls()
        self.mirror = StoreMirror(self.store, self.roots, self.wake)

    def step(self, action: str, path: str) -> None:
        try:
            self._act(action, path)
        except StoreError:
            return
        finally:
            self.store.fail_after = None

    def _act(self, action: str, path: str) -> None:
        if action == "create":
            self.writer.create(path, b"created")
        elif action == "ephemeral":
            self.writer.create(path, b"ephemeral", ephemeral=True)
        elif action == "set":
            self.writer.set(path, b"set")
        elif action == "delete":
            self.writer.delete(path)
        elif action == "deliver" and self.news:
            self.news.pop(0)()
        elif action == "deliver all":
            self.deliver()
        elif action == "refresh":
            self.mirror.refresh()
        elif action == "fail":
            self.store.fail_after = len(self.store.reads) + 2
            self.mirror.refresh()
        elif action == "cut":
            self.store.disconnect()
        elif action == "mend":
            self.store.reconnect()
        elif action == "expire":
            self.ensemble.expire(self.store.session_id)
        elif action == "down":
            self.ensemble.stop()
            self.ensemble.start()

    def check_exact(self) -> None:
        assert _mirrored(self.mirror, self.roots) == _stored(self.writer, self.roots)
        for path in _ALL[:-1]:
            assert self.mirror.get(path) == self.writer.get(path)

    def deliver(self) -> None:
        while self.news:
            self.news.pop(0)()


@given(_STEPS)
@example([("create", "/r"), ("fail", ""), ("expire", ""), ("deliver", ""), ("refresh", "")])
def test_it_becomes_exact_whatever_happened(steps: list[tuple[str, str]]) -> None:
    world = _World()
    for action, path in steps:
        world.step(action, path)
        assert max(world.ensemble.watches().values(), default=0) <= 1, "a watch was set twice"
    world.store.reconnect()
    # Once all news have come, it is dirty or exact; and what it reads then is all there is.
    world.deliver()
    if not has_stale_nodes(world.mirror):
        world.check_exact()
    world.mirror.refresh()
    world.check_exact()
    for path in _stored(world.writer, world.roots):
        world.writer.set(path, b"again")
        woken = world.wake.count
        world.deliver()
        assert world.wake.count > woken, f"nobody watches {path}"
        world.mirror.refresh()
        world.check_exact()
