"""Unit tests are quick because they start nothing: not Spark, not Java, not a socket."""

from __future__ import annotations

import pytest

from support.starting_nothing import refuse_to_start


@pytest.fixture(autouse=True)
def _nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_to_start(monkeypatch)
