"""A local mirror of subtrees of a store, which reads again only what has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from penstock.coord.coordination_store import Change, Kind, Store, StoredNode, StoreError, below, parent_of

_ORDER = {Kind.DATA: 0, Kind.CHILDREN: 1}
_BATCH = 500
"""Nodes per batch of requests. ZooKeeper throttles a client with more outstanding requests."""
_ALL_LEVELS = 1_000
"""The depth of a root that is mirrored completely."""


class _Watch:
    """A watch of the store. Only the latest one for a path and kind is valid: earlier ones are outdated."""

    def __init__(self, mirror: StoreMirror, change: Change) -> None:
        self._mirror = mirror
        self._change = change

    def __call__(self) -> None:
        self._mirror._fired(self._change, self)


class Changes:
    """The paths whose nodes have changed since the last ``take``. Thread-safe."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = set(paths)

    def add(self, path: str) -> None:
        """Add a changed path. Called by the mirror."""
        self._paths.add(path)

    def __bool__(self) -> bool:
        """Return whether any node has changed."""
        return bool(self._paths)

    def take(self) -> set[str]:
        """Remove and return the changed paths. A concurrent change is returned now or by the next call."""
        taken = set()
        while self._paths:
            try:
                taken.add(self._paths.pop())
            except KeyError:  # Another thread has taken the last path.
                break
        return taken


class StoreMirror:
    """A local copy of some root nodes and all nodes below them.

    A watch marks nodes that may have changed as stale and calls ``wake``; ``refresh`` reads stale nodes. Each
    read sets its watch in the same request, so no change is missed between them. A node is read again only
    after its watch has fired, so that watches do not accumulate. All watches fire when the connection breaks,
    and everything is read again after reconnection.

    ``depths`` is the number of levels below a root: the children of the last level are not requested. A
    change below a ``quiet`` root does not call ``wake`` and is read by the next refresh.

    Only one thread may call ``refresh`` and ``follow``; any thread may call the other methods. Each node is a
    consistent copy, but two nodes may be from different times.
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
        """By path, the names of its mirrored children."""
        self._names: dict[str, list[str]] = {}
        self._roots: set[str] = set()
        self._followed: set[str] = set()
        self._levels: dict[str, int] = {}
        """The number of mirrored levels below a path."""
        self._stale: set[Change] = set()
        self._watches: dict[Change, _Watch] = {}
        self._subscribed: list[Changes] = []
        self.follow(roots, depths)

    def get(self, path: str) -> StoredNode | None:
        """Return the copy of a node, None when there is none."""
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        """Return the names of a node's mirrored children, sorted."""
        with self._lock:
            return sorted(self._present.get(path, ()))

    def subscribe(self) -> Changes:
        """Return a set of changed paths that the mirror adds to; at first all mirrored paths."""
        with self._lock:
            changes = Changes(self._nodes)
            self._subscribed.append(changes)
            return changes

    def follow(self, roots: Iterable[str], depths: Mapping[str, int] | None = None) -> None:
        """Mirror these roots from now on, and no others. New ones are read by the next refresh."""
        wanted = set(roots)
        with self._lock:
            for root in sorted(self._roots - wanted):
                self._drop(root)
            for root in sorted(wanted - self._roots):
                self._followed.add(root)
                self._levels[root] = (depths or {}).get(root, _ALL_LEVELS)
                self._stale.add((Kind.DATA, root))
            self._roots = wanted

    def refresh(self) -> None:
        """Read all stale nodes. Nodes that change meanwhile are marked as stale again.

        Raises DisconnectedError; nodes that were not read stay unchanged and stale.
        """
        with self._lock:
            work = _by_rank(self._stale)
        while work:
            # From the top down: a node that its parent no longer lists need not be read.
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
                self._stale.add(change)
            elif parent_of(path) in self._nodes:
                self._stale.add((Kind.CHILDREN, parent_of(path)))

    def _read(self, changes: list[Change]) -> list[Change]:
        """Read stale nodes of one kind, and return what has to be read next."""
        with self._lock:
            wanted = [change for change in changes if change in self._stale and self._is_known(change)]
            self._stale.difference_update(changes)
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
                self._stale.update(left)
            raise
        return found

    def _is_known(self, change: Change) -> bool:
        kind, path = change
        return path in (self._followed if kind is Kind.DATA else self._nodes)

    def _take_data(self, path: str, node: StoredNode | None) -> list[Change]:
        """Store a node that was read, and return what has to be read next."""
        with self._lock:
            if node is None:
                self._forget(path)
                return []
            self._keep(path, node)
            if node.owner or path in self._names or self._levels.get(path, 0) <= 0:
                return []
            return self._add_stale([(Kind.CHILDREN, path)])

    def _take_names(self, path: str, names: list[str]) -> list[Change]:
        """Store the names of a node's children, and return the new ones to read next."""
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
            return self._add_stale([(Kind.DATA, child) for child in new])

    def _keep(self, path: str, node: StoredNode) -> None:
        self._nodes[path] = node
        above, _, name = path.rpartition("/")
        self._present.setdefault(above or "/", set()).add(name)
        self._publish(path)

    def _forget(self, path: str) -> None:
        """Remove a node and all nodes below it from the mirror."""
        if self._nodes.pop(path, None) is not None:
            above, _, name = path.rpartition("/")
            beside = self._present.get(above or "/", set())
            beside.discard(name)
            if not beside:
                self._present.pop(above or "/", None)
            self._publish(path)
        for name in self._names.pop(path, ()):
            self._forget(below(path, name))
            self._unfollow(below(path, name))

    def _unfollow(self, path: str) -> None:
        self._followed.discard(path)
        self._levels.pop(path, None)

    def _drop(self, root: str) -> None:
        """Stop mirroring a root. Watches that are still set are ignored."""
        for path in [root, *self._all_below(root)]:
            for kind in Kind:
                self._watches.pop((kind, path), None)
                self._stale.discard((kind, path))
        self._forget(root)
        self._unfollow(root)

    def _all_below(self, path: str) -> Iterator[str]:
        for name in self._names.get(path, ()):
            yield below(path, name)
            yield from self._all_below(below(path, name))

    def _publish(self, path: str) -> None:
        for changes in self._subscribed:
            changes.add(path)

    def _add_stale(self, changes: list[Change]) -> list[Change]:
        self._stale.update(changes)
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
            self._stale.add(change)
        if not f"{path}/".startswith(self._quiet):
            self._wake()


Rank = tuple[int, int]


def _by_rank(changes: Iterable[Change]) -> dict[Rank, set[Change]]:
    """Group changes by depth in the tree; for the same depth, data comes before children."""
    found: dict[Rank, set[Change]] = {}
    for change in changes:
        kind, path = change
        rank = (0 if path == "/" else path.count("/"), _ORDER[kind])
        found.setdefault(rank, set()).add(change)
    return found
