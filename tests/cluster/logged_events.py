"""Collects what Penstock logs while a test runs, as dictionaries."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[Mapping[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, dict):
            self.events.append(dict(record.msg))


@contextmanager
def logged_events() -> Iterator[list[Mapping[str, Any]]]:
    """Give a list that grows with each event."""
    logger, collector = logging.getLogger("penstock"), _Collector()
    before = logger.level
    logger.addHandler(collector)
    logger.setLevel(logging.INFO)
    try:
        yield collector.events
    finally:
        logger.setLevel(before)
        logger.removeHandler(collector)
