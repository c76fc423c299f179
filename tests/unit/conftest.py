"""Unit tests are quick because they start nothing: not Spark, not Java, not a socket."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a unit test tried to open a socket or to start Spark")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "bind", refuse)
    if "pyspark" in sys.modules:
        from pyspark import SparkContext

        monkeypatch.setattr(SparkContext, "_ensure_initialized", refuse)
