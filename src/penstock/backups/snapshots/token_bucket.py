"""The rate limit of snapshot transfers."""

from __future__ import annotations

import time
from collections.abc import Callable

_BURST_SECONDS = 0.25
_LARGEST_BLOCK = 1 << 16
_SMALLEST_BLOCK = 256


class TokenBucket:
    """Limits a transfer to ``rate`` bytes a second, with bursts of up to a quarter of a second.

    >>> now = [0.0]
    >>> bucket = TokenBucket(1000, clock=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s))
    >>> for _ in range(10):
    ...     bucket.take(500)
    >>> now[0]  # 5,000 bytes, the first 250 of them as a burst
    4.75
    """

    def __init__(
        self,
        rate: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if rate is not None and rate <= 0:
            raise ValueError(f"the rate must be more than 0 bytes a second, not {rate}")
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._burst = (rate or 0.0) * _BURST_SECONDS
        self._tokens = self._burst
        self._updated_at = clock()

    @property
    def block(self) -> int:
        """How many bytes to send at once, so that the link is neither idle nor busy for long."""
        if self._rate is None:
            return _LARGEST_BLOCK
        return max(_SMALLEST_BLOCK, min(_LARGEST_BLOCK, int(self._burst)))

    def take(self, count: int) -> None:
        """Wait until ``count`` bytes may be sent."""
        if self._rate is None:
            return
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._updated_at) * self._rate) - count
        self._updated_at = now
        # The balance may become negative, and sleep does not reset it: oversleeping is compensated later, up
        # to the size of a burst.
        if self._tokens < 0:
            self._sleep(-self._tokens / self._rate)
