"""A local copy of subtrees of a store that reads again only what has changed."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence

from penstock.coord.names import below, parent_of
from penstock.coord.store import Node, Store, StoreError
from penstock.coord.tree import Change, Kind

_ORDER = {Kind.DATA: 0, Kind.CHILDREN: 1}


class _Watch:
    """One watch that was set. Only the last one for a path and kind counts: it was read since the others."""

    def __init__(self, mirror: Mirror, change: Change) -> None:
        self._mirror = mirror
        self._change = change

    def __call__(self) -> None:
        self._mirror._fired(self._change, self)


class Mirror:
    """A copy of all that is below some paths, and of these themselves.

    A watch marks what may have changed and calls ``wake``; ``refresh`` reads what is marked. Each read sets
    its watch in the same request, so no change falls between them. Nothing is read again before its watch has
    fired, so that watches do not pile up. All of them fire when the connection breaks, and everything is read
    again after it.

    ``refresh`` is for one thread; the rest may be called from any. The copy of one node is as it was at some
    time; two nodes may be as they were at different times.
    """

    def __init__(self, store: Store, roots: Sequence[str], wake: Callable[[], None]) -> None:
        self._store = store
        self._wake = wake
        self._lock = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._names: dict[str, list[str]] = {}
        self._followed: set[str] = set(roots)
        self._dirty: set[Change] = {(Kind.DATA, root) for root in roots}
        self._watches: dict[Change, _Watch] = {}

    @property
    def dirty(self) -> bool:
        """Whether something may have changed since the last refresh."""
        with self._lock:
            return bool(self._dirty)

    def get(self, path: str) -> Node | None:
        """Return the copy of a node, None when there is none."""
        with self._lock:
            return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        """Return the names below the copy of a node, sorted."""
        with self._lock:
            return [name for name in self._names.get(path, ()) if below(path, name) in self._nodes]

    def refresh(self) -> None:
        """Read what may have changed. What changes meanwhile is marked again.

        Raises DisconnectedError; what was not read stays as it was, and marked.
        """
        with self._lock:
            work = [_rank(change) for change in self._dirty]
        heapq.heapify(work)
        while work:
            # From the top: what a parent no longer lists need not be read.
            _, _, path, kind = heapq.heappop(work)
            change = (kind, path)
            with self._lock:
                known = path in (self._followed if kind is Kind.DATA else self._nodes)
                marked = change in self._dirty
                self._dirty.discard(change)
            if not known or not marked:
                continue
            try:
                found = self._read_data(path) if kind is Kind.DATA else self._read_names(path)
            except StoreError:
                with self._lock:
                    self._dirty.add(change)
                raise
            for new in found:
                heapq.heappush(work, _rank(new))

    def doubt(self, path: str) -> None:
        """Have a node read again although no watch has told of it: a write has found it otherwise."""
        change = (Kind.DATA, path)
        with self._lock:
            if path in self._followed:
                self._dirty.add(change)
            elif parent_of(path) in self._nodes:
                self._dirty.add((Kind.CHILDREN, parent_of(path)))

    def _read_data(self, path: str) -> list[Change]:
        """Read a node, and return what must be read for it."""
        node = self._store.get(path, self._new_watch((Kind.DATA, path)))
        with self._lock:
            if node is None:
                self._forget(path)
                return []
            self._nodes[path] = node
            if node.owner or path in self._names:
                return []
            return self._mark([(Kind.CHILDREN, path)])

    def _read_names(self, path: str) -> list[Change]:
        """Read the names below a node, and return what must be read for new ones."""
        names = self._store.children(path, self._new_watch((Kind.CHILDREN, path)))
        with self._lock:
            if path not in self._nodes:
                return []
            for gone in sorted(set(self._names.get(path, ())) - set(names)):
                self._forget(below(path, gone))
                self._followed.discard(below(path, gone))
            new = [below(path, name) for name in names if below(path, name) not in self._followed]
            self._names[path] = names
            self._followed.update(new)
            return self._mark([(Kind.DATA, child) for child in new])

    def _forget(self, path: str) -> None:
        """Drop a node and all below it from the copy."""
        self._nodes.pop(path, None)
        for name in self._names.pop(path, ()):
            self._forget(below(path, name))
            self._followed.discard(below(path, name))

    def _mark(self, changes: list[Change]) -> list[Change]:
        self._dirty.update(changes)
        return changes

    def _new_watch(self, change: Change) -> _Watch:
        with self._lock:
            watch = self._watches[change] = _Watch(self, change)
            return watch

    def _fired(self, change: Change, watch: _Watch) -> None:
        with self._lock:
            if self._watches.get(change) is not watch:
                return
            del self._watches[change]
            if change[1] not in self._followed:
                return
            self._dirty.add(change)
        self._wake()


def _rank(change: Change) -> tuple[int, int, str, Kind]:
    kind, path = change
    return (0 if path == "/" else path.count("/"), _ORDER[kind], path, kind)
