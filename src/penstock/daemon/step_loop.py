"""The loop of a daemon: runs a step after each change or timeout, and survives failed steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.coord.coordination_store import DisconnectedError
from penstock.errors import SettingError
from penstock.process_logs.process_log import get_logger

_log = get_logger(__name__)

LEAST_PAUSE = 0.05
"""Seconds between two steps, however many changes there are."""
MOST_PAUSE = 2.0
"""Seconds after which a step is due at the latest when something has changed."""
_TIMES = 5
"""A daemon rests this many times as long as its step has computed: it uses a sixth of a core at the most."""


def pause_after(seconds: float) -> float:
    """Return how long to wait before the next step after one that took so many seconds of processor time.

    >>> [pause_after(seconds) for seconds in (0.001, 0.1, 3.0)]
    [0.05, 0.5, 2.0]
    """
    return min(max(LEAST_PAUSE, _TIMES * seconds), MOST_PAUSE)


class FatalError(SettingError):
    """A daemon must not run on, and would fail in the same way if it were started again."""


def run_step_loop(
    step: Callable[[float], None],
    *,
    wake: threading.Event,
    stop: threading.Event,
    tick: float,
    clock: Callable[[], float],
    hurry: threading.Event | None = None,
    elapsed: Callable[[], float] = time.monotonic,
    computed: Callable[[], float] = time.thread_time,
) -> None:
    """Call ``step`` with the time whenever ``wake`` is set, or after ``tick`` seconds, until ``stop`` is.

    Changes that come right after a step wait for a pause, and are then handled together. A change after a
    rest is handled at once, and so is one that sets ``hurry`` as well.
    Raises FatalError if a step does; whatever else a step raises is logged.
    """
    while not stop.is_set():
        wake.clear()
        if hurry is not None:
            hurry.clear()
        before = computed()
        try:
            step(clock())
        except DisconnectedError as error:
            _log.warning("the store cannot be reached", reason=str(error))
        except FatalError as error:
            _log.error("ends", reason=str(error))
            raise
        except Exception:
            _log.exception("a step failed")
        next_at = elapsed() + pause_after(computed() - before)
        if wake.wait(tick) and (left := next_at - elapsed()) > 0:
            (hurry or stop).wait(left)
