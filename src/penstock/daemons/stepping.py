"""How a daemon spends its life: a step when something has changed, or after a while; no failure ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.coord.store import DisconnectedError
from penstock.logs import get_logger

_log = get_logger(__name__)


def keep_stepping(
    step: Callable[[float], None],
    *,
    wake: threading.Event,
    stop: threading.Event,
    tick: float,
    clock: Callable[[], float],
) -> None:
    """Call ``step`` with the time whenever ``wake`` is set, or after ``tick`` seconds, until ``stop`` is."""
    while not stop.is_set():
        wake.clear()
        try:
            step(clock())
        except DisconnectedError as error:
            _log.warning("the store cannot be reached", reason=str(error))
        except Exception:
            _log.exception("a step failed")
        wake.wait(tick)
