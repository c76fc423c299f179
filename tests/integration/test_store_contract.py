"""Both stores do the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from memory_servers import MemoryServers
from store_cases import StoreCases
from store_support import Servers
from zookeeper_servers import ZooKeeperServers

from penstock.coord.embedded import EmbeddedZooKeeper


class TestStores(StoreCases):
    @pytest.fixture(params=["memory", "zookeeper"])
    def servers(self, request: pytest.FixtureRequest) -> Iterator[Servers]:
        if request.param == "memory":
            yield MemoryServers()
            return
        server: EmbeddedZooKeeper = request.getfixturevalue("zookeeper")
        servers = ZooKeeperServers(server.connect_string)
        try:
            yield servers
        finally:
            servers.close()
