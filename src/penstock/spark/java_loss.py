"""What tells that Spark's Java process is gone."""

from __future__ import annotations

from typing import Any

JAVA_LOST = "Spark's Java process does not answer any more"


def is_java_lost(error: BaseException | None) -> bool:
    """Whether an error says that the Java process is gone, so that asking again is in vain."""
    from py4j.protocol import Py4JNetworkError

    return isinstance(error, Py4JNetworkError | ConnectionRefusedError | ConnectionResetError)


def is_java_answering(gateway: Any) -> bool:
    """Ask the Java process at the other end of a gateway for anything.

    When it is killed, its connections end before the process itself has.
    """
    try:
        gateway.jvm.System.nanoTime()
    except Exception as error:
        if is_java_lost(error):
            return False
        raise
    return True
