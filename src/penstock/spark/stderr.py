"""The standard error of Java and its Python workers, without what nobody can act on."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

_NOISE = (b"WARNING: Using incubator modules: jdk.incubator.vector",)
_TRACEBACK = b"Traceback (most recent call last):"
_HUNG_UP = (b"BrokenPipeError", b"ConnectionResetError", b"EOFError")
"""What PySpark's own processes print, traceback and all, when Spark has ended before them."""
_THEIR_OWN = (b"pyspark/daemon.py", b"pyspark/worker", b"python_streaming_source_runner.py")


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
    with os.fdopen(reading, "rb") as stream, suppress(OSError):
        for line in without_noise(stream):
            os.write(real, line)


def without_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Drop known lines, and tracebacks of PySpark's own processes whose other end has gone.

    >>> said = [b"mine", b"Traceback (most recent call last):", b'  File "pyspark/daemon.py"', b"EOFError"]
    >>> list(without_noise(line + b"\\n" for line in said))
    [b'mine\\n']
    """
    traceback: list[bytes] = []
    for line in lines:
        if traceback:
            traceback.append(line)
            if not line.startswith((b" ", b"\n")):
                if not _is_hang_up(traceback):
                    yield from traceback
                traceback = []
        elif line.rstrip() == _TRACEBACK:
            traceback = [line]
        elif line.rstrip() not in _NOISE:
            yield line
    if traceback and not _is_theirs(traceback):
        yield from traceback


def _is_hang_up(traceback: list[bytes]) -> bool:
    return traceback[-1].startswith(_HUNG_UP) and _is_theirs(traceback)


def _is_theirs(traceback: list[bytes]) -> bool:
    return len(traceback) > 1 and any(place in traceback[1] for place in _THEIR_OWN)
