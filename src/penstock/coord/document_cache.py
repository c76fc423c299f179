"""A cache of the decoded documents of a mirrored tree, by folder. Only changed ones are decoded again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from penstock.coord.coordination_store import parent_of
from penstock.coord.store_mirror import StoreMirror
from penstock.replicas.replica_id import ReplicaId, by_job

T = TypeVar("T")

Read = Callable[[str], Any]
"""Reads the document at a path; None when there is none."""


class DocumentCache:
    """The documents below requested folders of a mirror. Thread-safe.

    A returned dict is never modified: after a change, a new one is returned. ``news`` counts the changes that
    may require a decision: not those below ``quiet`` folders, and not a document that is equal for decisions
    to the previous one.

    Documents are found by the name of their node, and those of folders ``by_replica`` by the replica that it
    names; names are read nowhere else.
    """

    def __init__(
        self,
        mirror: StoreMirror,
        forget: Callable[[str], None],
        *,
        quiet: Collection[str] = (),
        by_replica: Collection[str] = (),
    ) -> None:
        self.news = 0
        self._mirror = mirror
        self._forget = forget
        """Called with each path whose node was deleted."""
        self._quiet = frozenset(quiet)
        self._by_replica = frozenset(by_replica)
        self._changes = mirror.subscribe()
        self._lock = threading.Lock()
        self._update_count = 0
        """Incremented at the start and at the end of each update, so odd during an update."""
        self._folders: dict[str, dict[Any, Any]] = {}
        self._stale: dict[str, set[str]] = {}
        """By cached folder, the names below it that must be read again."""
        self._by_job: dict[str, tuple[Mapping[ReplicaId, object], Mapping[str, tuple[ReplicaId, ...]]]] = {}

    def folder(self, root: str, read: Callable[[str], T | None]) -> dict[str, T]:
        """Return the documents directly below a path, by name."""
        return self._updated(root, read)

    def replicas(self, root: str, read: Callable[[str], T | None]) -> dict[ReplicaId, T]:
        """Return the documents right below a path, by replica."""
        return self._updated(root, read)

    def groups(
        self, root: str, read: Callable[[str], T | None], is_same: Callable[[T, T], bool]
    ) -> dict[ReplicaId, tuple[T, ...]]:
        """Return the documents two levels below a path, grouped by replica. No group is empty."""

        def group(path: str) -> tuple[T, ...] | None:
            found = (read(f"{path}/{name}") for name in self._mirror.children(path))
            return tuple(document for document in found if document is not None) or None

        def are_same(one: tuple[T, ...], other: tuple[T, ...]) -> bool:
            return len(one) == len(other) and all(map(is_same, one, other))

        return self._updated(root, group, are_same)

    def replicas_by_job(
        self, root: str, documents: Mapping[ReplicaId, object]
    ) -> Mapping[str, tuple[ReplicaId, ...]]:
        """Return the sorted replicas that a folder has documents about, by job."""
        with self._lock:
            known = self._by_job.get(root)
            if known is None or known[0] is not documents:
                known = self._by_job[root] = (documents, by_job(documents))
            return known[1]

    def _updated(
        self, root: str, read: Read, is_same: Callable[[Any, Any], bool] | None = None
    ) -> dict[Any, Any]:
        # Without changes, return without the lock: listing all jobs calls this thousands of times. If another
        # thread is updating the cache, or begins to, wait for it.
        count, known = self._update_count, self._folders.get(root)
        current = count % 2 == 0 and known is not None and not self._stale[root] and not self._changes
        if current and known is not None and self._update_count == count:
            return known
        with self._lock:
            self._update_count += 1
            try:
                return self._update(root, read, is_same)
            finally:
                self._update_count += 1

    def _update(self, root: str, read: Read, is_same: Callable[[Any, Any], bool] | None) -> dict[Any, Any]:
        if root not in self._folders:
            self._stale[root], self._folders[root] = set(self._mirror.children(root)), {}
        self._find_stale()
        if self._stale[root]:
            names, self._stale[root] = sorted(self._stale[root]), set()
            self._folders[root] = self._read_again(root, names, read, is_same)
        return self._folders[root]

    def _find_stale(self) -> None:
        for path in self._changes.take():
            if self._mirror.get(path) is None:
                self._forget(path)
            above = parent_of(path)
            for folder, name in ((above, path), (parent_of(above), above)):
                if folder in self._stale:
                    self._stale[folder].add(name.rpartition("/")[2])

    def _read_again(
        self, root: str, names: list[str], read: Read, is_same: Callable[[Any, Any], bool] | None
    ) -> dict[Any, Any]:
        """Read some documents of a folder again, and return the new folder sorted by key."""
        before = self._folders[root]
        after, has_new = dict(before), False
        for name in names:
            key = ReplicaId.find(name) if root in self._by_replica else name
            old, new = before.get(key), read(f"{root}/{name}")
            if new is None:
                after.pop(key, None)
            else:
                after[key] = new
                has_new |= old is None
            if old is new:
                continue
            if old is None or new is None or is_same is None or not is_same(old, new):
                self.news += root not in self._quiet
        if has_new:
            return {key: after[key] for key in sorted(after)}
        return after
