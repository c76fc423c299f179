"""Keeps PySpark from printing, traceback and all, that Java is gone: the job says so in a sentence."""

from __future__ import annotations

import logging
import sys
from typing import Any

from penstock.spark.java_loss import is_java_lost


class _WithoutJavaLoss(logging.Filter):
    """Drops what py4j logs, as the root logger, of a command that Java did not answer any more."""

    def filter(self, record: logging.LogRecord) -> bool:
        raised = record.exc_info[1] if record.exc_info else None
        return not ("py4j" in record.pathname and is_java_lost(raised))


_FILTER = _WithoutJavaLoss()


def keep_java_loss_quiet(context: Any) -> None:
    """Have what PySpark runs in this process for a context say nothing when Java dies."""
    logging.getLogger().addFilter(_FILTER)
    server = context._accumulatorServer
    told = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            told(request, address)

    server.handle_error = handle_error
