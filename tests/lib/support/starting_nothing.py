"""Keeps tests that are to be pure from starting anything: not Spark, not Java, not a socket."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest


def refuse_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a socket that is connected or bound, and Spark that is started, raise."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a test that starts nothing tried to open a socket or to start Spark")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "bind", refuse)
    if "pyspark" in sys.modules:
        from pyspark import SparkContext

        monkeypatch.setattr(SparkContext, "_ensure_initialized", refuse)
