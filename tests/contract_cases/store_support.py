"""How the cases of all stores get a store, and wait for its news."""

from __future__ import annotations

from typing import Protocol

from penstock.coord.coordination_store import Store, StoredNode
from penstock.coord.store_mirror import StoreMirror


class Servers(Protocol):
    """How the cases get stores, and what they do to their sessions."""

    def open(self) -> Store:
        """Return a store with a session of its own; it is closed after the test."""
        ...

    def expire(self, store: Store) -> None:
        """Have the servers end the session of a store."""
        ...

    def interrupt(self, store: Store) -> None:
        """Break the connection of a store, and let it connect again."""
        ...


class Calls:
    """A watcher that counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def has_stale_nodes(mirror: StoreMirror) -> bool:
    """Whether the next refresh has anything to read."""
    return bool(mirror._stale)


def gets(store: Store, path: str) -> StoredNode:
    node = store.get(path)
    assert node is not None
    return node
