"""The store in memory does what every store does."""

from __future__ import annotations

import pytest
from memory_servers import MemoryServers
from store_cases import StoreCases


class TestMemoryStore(StoreCases):
    @pytest.fixture
    def servers(self) -> MemoryServers:
        return MemoryServers()
