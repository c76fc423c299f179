"""What integration tests share: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.coord.embedded_zookeeper import EmbeddedZooKeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """One real ZooKeeper server; tests use roots of their own."""
    server = EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    try:
        server.start()
        server.wait_ready(timeout=120)
        yield server
    finally:
        server.stop()
