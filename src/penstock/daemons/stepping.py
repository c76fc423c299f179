"""How a daemon spends its life: a step when something has changed, or after a while; no failure ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.coord.store import DisconnectedError
from penstock.errors import SettingError
from penstock.logs import get_logger

_log = get_logger(__name__)


class FatalError(SettingError):
    """A daemon must not run on, and would fail in the same way if it were started again."""


def keep_stepping(
    step: Callable[[float], None],
    *,
    wake: threading.Event,
    stop: threading.Event,
    tick: float,
    clock: Callable[[], float],
) -> None:
    """Call ``step`` with the time whenever ``wake`` is set, or after ``tick`` seconds, until ``stop`` is.

    Raises FatalError if a step does; whatever else a step raises is logged.
    """
    while not stop.is_set():
        wake.clear()
        try:
            step(clock())
        except DisconnectedError as error:
            _log.warning("the store cannot be reached", reason=str(error))
        except FatalError as error:
            _log.error("ends", reason=str(error))
            raise
        except Exception:
            _log.exception("a step failed")
        wake.wait(tick)
