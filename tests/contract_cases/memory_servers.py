"""The store in memory, for the cases of all stores."""

from __future__ import annotations

from penstock.coord.coordination_store import Store
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore


class MemoryServers:
    """Opens stores of one ensemble."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()

    def open(self) -> MemoryStore:
        return MemoryStore(self.ensemble)

    def expire(self, store: Store) -> None:
        self.ensemble.expire(store.session_id)

    def interrupt(self, store: Store) -> None:
        assert isinstance(store, MemoryStore)
        store.disconnect()
        store.reconnect()
