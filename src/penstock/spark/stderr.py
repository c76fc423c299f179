"""Java's standard error without the line that every Spark start prints and nobody can act on."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_NOISE = (b"WARNING: Using incubator modules: jdk.incubator.vector",)


@contextmanager
def filtered_stderr() -> Iterator[None]:
    """Give processes that are started within a standard error of which we drop the known noise.

    Everything else, what users print in their tasks above all, is passed on as it comes.
    """
    reading, writing = os.pipe()
    real = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    threading.Thread(target=_pass_on, args=(reading, real), name="java-stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(real, 2)


def _pass_on(reading: int, real: int) -> None:
    with os.fdopen(reading, "rb", buffering=0) as stream, suppress(OSError):
        while chunk := stream.read(65536):
            lines = [line for line in chunk.splitlines(keepends=True) if line.rstrip() not in _NOISE]
            os.write(real, b"".join(lines))
