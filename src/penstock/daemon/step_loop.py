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
"""Minimum number of seconds between two steps, however many changes there are."""
MOST_PAUSE = 2.0
"""Maximum number of seconds from a change to the next step."""
_PAUSE_FACTOR = 5
"""The pause after a step as a multiple of its processor time: a daemon uses at most a sixth of a core."""


def pause_after(seconds: float) -> float:
    """Return how long to wait after a step that took ``seconds`` of processor time.

    >>> [pause_after(seconds) for seconds in (0.001, 0.1, 3.0)]
    [0.05, 0.5, 2.0]
    """
    return min(max(LEAST_PAUSE, _PAUSE_FACTOR * seconds), MOST_PAUSE)


class FatalError(SettingError):
    """A daemon must stop, and would fail in the same way if it were restarted."""


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
    """Call ``step`` with the time when ``wake`` is set, or after ``tick`` seconds, until ``stop`` is set.

    After a step there is a pause, and all changes during the pause are handled together by the next step.
    Setting ``hurry`` together with ``wake`` ends the pause. Raises FatalError if a step does; other errors of
    a step are logged.
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
            _log.error("daemon stops", reason=str(error))
            raise
        except Exception:
            _log.exception("a step failed")
        next_at = elapsed() + pause_after(computed() - before)
        if wake.wait(tick) and (left := next_at - elapsed()) > 0:
            (hurry or stop).wait(left)
