"""Results of batches that break off on their way from Java, as when Java dies or its sender fails."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any

import pyspark.util
import pytest

_connect = pyspark.util._create_local_socket


class ResultCutter:
    """Cuts the results of batches. Each call of ``collect`` asks it where its stream ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cut: Callable[[bytes], int | None] = lambda _: None
        """Given the whole stream, returns how much of it arrives; None for all of it."""
        self.hang_up_after: int | None = None
        """Of the next stream read only so much, and close it: Java finds nobody to send the rest to."""
        self.largest = 0
        self.cuts = 0
        monkeypatch.setattr("pyspark.util._create_local_socket", self._connect)

    def _connect(self, served: Any) -> tuple[Any, Any]:
        file, sock = _connect(served)
        if self.hang_up_after is not None:
            stream, self.hang_up_after = file.read(self.hang_up_after), None
            self.cuts += 1
            file.close()
            return io.BytesIO(stream), sock
        stream = file.read()
        self.largest = max(self.largest, len(stream))
        arrives = self.cut(stream)
        self.cuts += arrives is not None
        return io.BytesIO(stream[:arrives]), sock


def positions_of(stream: bytes) -> list[int]:
    """Return where to cut a stream: before each frame, within its length, and within the frame.

    Every single byte is had where a recorded stream is cut, in the tests of the module that reads it.
    """
    found = []
    start = 0
    while start + 4 <= len(stream):
        (length,) = struct.unpack("!i", stream[start : start + 4])
        if length < 0:
            break
        end = start + 4 + length
        found += [start, start + 2, start + 4 + length // 2]
        start = end
    return found
