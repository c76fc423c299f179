"""Retries of a sink with exponential backoff."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from penstock import setting_values

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0


class Retries:
    """Pauses between the attempts of a sink, doubling the pause each time.

    >>> pauses: list[float] = []
    >>> retries = Retries("HttpSink", 2, pauses.append, lambda: 1.0)
    >>> [retries.pause(attempt) for attempt in (0, 1, 2)], pauses
    ([True, True, False], [0.5, 1.0])
    """

    def __init__(
        self, sink: str, most: int, sleep: Callable[[float], None], chance: Callable[[], float]
    ) -> None:
        setting_values.check_whole_number(sink, "retries", most, least=0)
        self.most = most
        self._sleep, self._chance = sleep, chance

    def pause(self, attempt: int, at_least: float = 0.0) -> bool:
        """Pause after failed attempt number ``attempt``, from 0; return False if no retry is left."""
        if attempt >= self.most:
            return False
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**attempt)
        # Half of the pause is random, so that many jobs or replicas do not retry at the same moment.
        self._sleep(min(_LONGEST_PAUSE, max(pause * (0.5 + self._chance() / 2), at_least)))
        return True

    def __reduce__(self) -> Any:
        # Only the driver retries, so sleep and chance need not be picklable.
        return Retries, ("", self.most, time.sleep, random.random)
