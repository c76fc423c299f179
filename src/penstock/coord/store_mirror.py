"""A local copy of subtrees of a store that reads again only what has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from penstock.coord.coordination_store import Change, Kind, Store, StoredNode, StoreError, below, parent_of

_ORDER = {Kind.DATA: 0, Kind.CHILDREN: 1}
_BATCH = 500
"""So many nodes are asked for at once. ZooKeeper slows a client down that has more requests under way."""
_ALL = 1_000
"""Levels below a root that is copied as a whole."""


class _Watch:
    """One watch that was set. Only the last one for a path and kind counts: it was read since the others."""

    def __init__(self, mirror: StoreMirror, change: Change) -> None:
        self._mirror = mirror
        self._change = change

    def __call__(self) -> None:
        self._mirror._fired(self._change, self)


class Changes:
    """The paths whose copies have changed since they were last taken. Several threads may take them."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = set(paths)

    def add(self, path: str) -> None:
        """Note that a copy has changed. Called by the mirror."""
        self._paths.add(path)

    def __bool__(self) -> bool:
        """Whether something has changed."""
        return bool(self._paths)

    def take(self) -> set[str]:
        """Return what has changed. A change that comes meanwhile is there the next time."""
        taken = set()
        while self._paths:
            try:
                taken.add(self._paths.pop())
            except KeyError:  # Another thread has taken the last one.
                break
        return taken


class StoreMirror:
    """A copy of all that is below some paths, and of these themselves.

    A watch marks what may have changed and calls ``wake``; ``refresh`` reads what is marked. Each read sets
    its watch in the same request, so no change falls between them. Nothing is read again before its watch has
    fired, so that watches do not pile up. All of them fire when the connection breaks, and everything is read
    again after it.

    ``depths`` says of a root how many levels below it there are: names below the last are not asked for.
    What changes below a root that is ``quiet`` is read with the next refresh, and does not wake anybody.

    ``refresh`` and ``follow`` are for one thread; the rest may be called from any. The copy of one node is as
    it was at some time; two nodes may be as they were at different times.
    """

    def __init__(
        self,
        store: Store,
        roots: Iterable[str],
        wake: Callable[[], None],
        *,
        depths: Mapping[str, int] | None = None,
        quiet: Collection[str] = (),
    ) -> None:
        self._store = store
        self._wake = wake
        self._quiet = tuple(f"{root}/" for root in quiet)
        self._lock = threading.Lock()
        self._nodes: dict[str, StoredNode] = {}
        self._present: dict[str, set[str]] = {}
        """By path, the names below it that there are copies of."""
        self._names: dict[str, list[str]] = {}
        self._roots: set[str] = set()
        self._followed: set[str] = set()
        self._levels: dict[str, int] = {}
        """How many levels below a path are copied."""
        self._dirty: set[Change] = set()
        self._watches: dict[Change, _Watch] = {}
        self._subscribed: list[Changes] = []
        self.follow(roots, depths)

    @property
    def dirty(self) -> bool:
        """Whether something may have changed since the last refresh."""
        with self._lock:
            return bool(self._dirty)

    def get(self, path: str) -> StoredNode | None:
        """Return the copy of a node, None when there is none."""
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        """Return the names below a path that there are copies of, sorted."""
        with self._lock:
            return sorted(self._present.get(path, ()))

    def subscribe(self) -> Changes:
        """Return the paths that have changed, now and from now on: at first all that there are copies of."""
        with self._lock:
            changes = Changes(self._nodes)
            self._subscribed.append(changes)
            return changes

    def follow(self, roots: Iterable[str], depths: Mapping[str, int] | None = None) -> None:
        """Copy what is below these paths from now on, and nothing else. They are read by the next refresh."""
        wanted = set(roots)
        with self._lock:
            for root in sorted(self._roots - wanted):
                self._drop(root)
            for root in sorted(wanted - self._roots):
                self._followed.add(root)
                self._levels[root] = (depths or {}).get(root, _ALL)
                self._dirty.add((Kind.DATA, root))
            self._roots = wanted

    def refresh(self) -> None:
        """Read what may have changed. What changes meanwhile is marked again.

        Raises DisconnectedError; what was not read stays as it was, and marked.
        """
        with self._lock:
            work = _by_rank(self._dirty)
        while work:
            # From the top: what a parent no longer lists need not be read.
            rank = min(work)
            changes = sorted(work.pop(rank), key=lambda change: change[1])
            for start in range(0, len(changes), _BATCH):
                found = self._read(changes[start : start + _BATCH])
                for new, together in _by_rank(found).items():
                    work.setdefault(new, set()).update(together)

    def mark_stale(self, path: str) -> None:
        """Mark a node as stale although no watch fired, because a write found another version."""
        change = (Kind.DATA, path)
        with self._lock:
            if path in self._followed:
                self._dirty.add(change)
            elif parent_of(path) in self._nodes:
                self._dirty.add((Kind.CHILDREN, parent_of(path)))

    def _read(self, changes: list[Change]) -> list[Change]:
        """Read changes of one kind, and return what must be read for them."""
        with self._lock:
            wanted = [change for change in changes if change in self._dirty and self._is_known(change)]
            self._dirty.difference_update(changes)
            reads = [(change[1], self._new_watch(change)) for change in wanted]
        if not wanted:
            return []
        found: list[Change] = []
        left = iter(wanted)
        try:
            if wanted[0][0] is Kind.DATA:
                for node in self._store.get_many(reads):
                    found += self._take_data(next(left)[1], node)
            else:
                for names in self._store.children_many(reads):
                    found += self._take_names(next(left)[1], names)
        except StoreError:
            with self._lock:
                self._dirty.update(left)
            raise
        return found

    def _is_known(self, change: Change) -> bool:
        kind, path = change
        return path in (self._followed if kind is Kind.DATA else self._nodes)

    def _take_data(self, path: str, node: StoredNode | None) -> list[Change]:
        """Keep a node that was read, and return what must be read for it."""
        with self._lock:
            if node is None:
                self._forget(path)
                return []
            self._keep(path, node)
            if node.owner or path in self._names or self._levels.get(path, 0) <= 0:
                return []
            return self._mark([(Kind.CHILDREN, path)])

    def _take_names(self, path: str, names: list[str]) -> list[Change]:
        """Keep the names below a node, and return what must be read for new ones."""
        with self._lock:
            if path not in self._nodes:
                return []
            for gone in sorted(set(self._names.get(path, ())) - set(names)):
                self._forget(below(path, gone))
                self._unfollow(below(path, gone))
            new = [child for name in names if (child := below(path, name)) not in self._followed]
            self._names[path] = names
            self._followed.update(new)
            self._levels.update(dict.fromkeys(new, self._levels[path] - 1))
            return self._mark([(Kind.DATA, child) for child in new])

    def _keep(self, path: str, node: StoredNode) -> None:
        self._nodes[path] = node
        above, _, name = path.rpartition("/")
        self._present.setdefault(above or "/", set()).add(name)
        self._tell(path)

    def _forget(self, path: str) -> None:
        """Drop a node and all below it from the copy."""
        if self._nodes.pop(path, None) is not None:
            above, _, name = path.rpartition("/")
            beside = self._present.get(above or "/", set())
            beside.discard(name)
            if not beside:
                self._present.pop(above or "/", None)
            self._tell(path)
        for name in self._names.pop(path, ()):
            self._forget(below(path, name))
            self._unfollow(below(path, name))

    def _unfollow(self, path: str) -> None:
        self._followed.discard(path)
        self._levels.pop(path, None)

    def _drop(self, root: str) -> None:
        """Follow a root and what is below it no longer. Watches that are still set are ignored."""
        for path in [root, *self._all_below(root)]:
            for kind in Kind:
                self._watches.pop((kind, path), None)
                self._dirty.discard((kind, path))
        self._forget(root)
        self._unfollow(root)

    def _all_below(self, path: str) -> Iterator[str]:
        for name in self._names.get(path, ()):
            yield below(path, name)
            yield from self._all_below(below(path, name))

    def _tell(self, path: str) -> None:
        for changes in self._subscribed:
            changes.add(path)

    def _mark(self, changes: list[Change]) -> list[Change]:
        self._dirty.update(changes)
        return changes

    def _new_watch(self, change: Change) -> _Watch:
        watch = self._watches[change] = _Watch(self, change)
        return watch

    def _fired(self, change: Change, watch: _Watch) -> None:
        path = change[1]
        with self._lock:
            if self._watches.get(change) is not watch:
                return
            del self._watches[change]
            if path not in self._followed:
                return
            self._dirty.add(change)
        if not f"{path}/".startswith(self._quiet):
            self._wake()


Rank = tuple[int, int]


def _by_rank(changes: Iterable[Change]) -> dict[Rank, set[Change]]:
    """Sort changes by how far from the top they are; of one node, its data comes before its names."""
    found: dict[Rank, set[Change]] = {}
    for change in changes:
        kind, path = change
        rank = (0 if path == "/" else path.count("/"), _ORDER[kind])
        found.setdefault(rank, set()).add(change)
    return found
