"""Property tests start nothing, as unit tests: they run side by side with others."""

from __future__ import annotations

import pytest

from support.starting_nothing import refuse_to_start


@pytest.fixture(autouse=True)
def _nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_to_start(monkeypatch)
