"""Decoded documents of a mirrored tree by folder; only changed ones are decoded again."""

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
    """What is below the folders of a mirror that were asked for. Any thread may ask.

    A folder that is returned is not changed any more: after a change there is another one. ``news`` counts
    changes that somebody may have to decide on: neither those below ``quiet`` folders nor a document that is
    the same for decisions as the one before.

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
        """Told of each path whose node is gone."""
        self._quiet = frozenset(quiet)
        self._by_replica = frozenset(by_replica)
        self._changes = mirror.subscribe()
        self._lock = threading.Lock()
        self._turn = 0
        """Odd while a thread updates something."""
        self._folders: dict[str, dict[Any, Any]] = {}
        self._stale: dict[str, set[str]] = {}
        """By folder that is known, the names below it that must be read again."""
        self._by_job: dict[str, tuple[Mapping[ReplicaId, object], Mapping[str, tuple[ReplicaId, ...]]]] = {}

    def folder(self, root: str, read: Callable[[str], T | None]) -> dict[str, T]:
        """Return the documents right below a path, by name."""
        return self._updated(root, read)

    def replicas(self, root: str, read: Callable[[str], T | None]) -> dict[ReplicaId, T]:
        """Return the documents right below a path, by replica."""
        return self._updated(root, read)

    def groups(
        self, root: str, read: Callable[[str], T | None], is_same: Callable[[T, T], bool]
    ) -> dict[ReplicaId, tuple[T, ...]]:
        """Return the documents two levels below a path, by replica. No group is empty."""

        def group(path: str) -> tuple[T, ...] | None:
            found = (read(f"{path}/{name}") for name in self._mirror.children(path))
            return tuple(document for document in found if document is not None) or None

        def are_same(one: tuple[T, ...], other: tuple[T, ...]) -> bool:
            return len(one) == len(other) and all(map(is_same, one, other))

        return self._updated(root, group, are_same)

    def replicas_by_job(
        self, root: str, documents: Mapping[ReplicaId, object]
    ) -> Mapping[str, tuple[ReplicaId, ...]]:
        """Return the replicas that documents of a folder are about, sorted, by job."""
        with self._lock:
            known = self._by_job.get(root)
            if known is None or known[0] is not documents:
                known = self._by_job[root] = (documents, by_job(documents))
            return known[1]

    def _updated(
        self, root: str, read: Read, is_same: Callable[[Any, Any], bool] | None = None
    ) -> dict[Any, Any]:
        # Nobody waits if nothing has changed: a list of all jobs asks thousands of times. What another thread
        # has begun to update, or updates meanwhile, is waited for.
        turn, known = self._turn, self._folders.get(root)
        settled = turn % 2 == 0 and known is not None and not self._stale[root] and not self._changes
        if settled and known is not None and self._turn == turn:
            return known
        with self._lock:
            self._turn += 1
            try:
                return self._update(root, read, is_same)
            finally:
                self._turn += 1

    def _update(self, root: str, read: Read, is_same: Callable[[Any, Any], bool] | None) -> dict[Any, Any]:
        if root not in self._folders:
            self._stale[root], self._folders[root] = set(self._mirror.children(root)), {}
        self._find_stale()
        if self._stale[root]:
            names, self._stale[root] = sorted(self._stale[root]), set()
            self._folders[root] = self._with(root, names, read, is_same)
        return self._folders[root]

    def _find_stale(self) -> None:
        for path in self._changes.take():
            if self._mirror.get(path) is None:
                self._forget(path)
            above = parent_of(path)
            for folder, name in ((above, path), (parent_of(above), above)):
                if folder in self._stale:
                    self._stale[folder].add(name.rpartition("/")[2])

    def _with(
        self, root: str, names: list[str], read: Read, is_same: Callable[[Any, Any], bool] | None
    ) -> dict[Any, Any]:
        """Return a folder with some documents read again, in the order of their keys."""
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
