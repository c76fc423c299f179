"""ZooKeeper does what every store does; unit tests hold the store in memory to the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from store_cases import StoreCases
from zookeeper_servers import ZooKeeperServers

from penstock.coord.embedded_zookeeper import EmbeddedZooKeeper


class TestZooKeeperStore(StoreCases):
    @pytest.fixture
    def servers(self, zookeeper: EmbeddedZooKeeper) -> Iterator[ZooKeeperServers]:
        servers = ZooKeeperServers(zookeeper.connect_string)
        try:
            yield servers
        finally:
            servers.close()
