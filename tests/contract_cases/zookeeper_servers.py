"""The store on ZooKeeper, for the cases of all stores."""

from __future__ import annotations

import uuid

from kazoo.client import KazooClient
from kazoo.protocol.connection import _CONNECTION_DROP

from penstock.coord.coordination_store import Store
from penstock.coord.zookeeper_store import ZooKeeperStore

PASSWORD = "correct horse battery staple"


class ZooKeeperServers:
    """Opens stores below a root of its own on servers that run."""

    def __init__(self, connect_string: str) -> None:
        self.connect_string = connect_string
        self.root = f"/test-{uuid.uuid4().hex}"
        self._stores: list[ZooKeeperStore] = []

    def open(self, timeout: float = 10.0, session_seconds: float = 6.0) -> ZooKeeperStore:
        store = ZooKeeperStore.connect(
            self.connect_string, PASSWORD, root=self.root, session_seconds=session_seconds, timeout=timeout
        )
        self._stores.append(store)
        return store

    def expire(self, store: Store) -> None:
        """End a session as its owner would, from a second connection that has its id and password."""
        assert isinstance(store, ZooKeeperStore)
        double = KazooClient(hosts=self.connect_string, client_id=store._client.client_id)
        double.start()
        double.stop()
        double.close()

    def interrupt(self, store: Store) -> None:
        assert isinstance(store, ZooKeeperStore)
        client = store._client
        client._call(_CONNECTION_DROP, client.handler.async_result())

    def close(self) -> None:
        for store in self._stores:
            store.close()
