"""Keeps PySpark from printing, traceback and all, that Java is gone: the job says so in a sentence."""

from __future__ import annotations

import logging
import sys
from typing import Any

from penstock.spark.java_loss import is_java_lost

_LOGGERS = ("", "py4j.clientserver", "py4j.java_gateway")
"""The loggers that py4j uses; where the root has no handler, it gives it one."""
_IN_A_BATCH = "There was an exception while executing the Python Proxy"
"""How py4j begins what it logs of an error that a batch has ended with, which the job tells itself."""


class _WithoutJavaLoss(logging.Filter):
    """Drops what py4j logs of a command that Java did not answer, and of a batch that failed by it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if "py4j" not in record.pathname:
            return True
        raised = record.exc_info[1] if record.exc_info else None
        return not (is_java_lost(raised) or str(record.msg).startswith(_IN_A_BATCH))


_FILTER = _WithoutJavaLoss()


def keep_java_loss_quiet(context: Any) -> None:
    """Have what PySpark runs in this process for a context say nothing when Java dies."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
    server = context._accumulatorServer
    told = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            told(request, address)

    server.handle_error = handle_error
