"""How often, and after how long, the query of a job is started again that a passing failure has ended."""

from __future__ import annotations

from dataclasses import dataclass

PAUSES = (1.0, 3.0, 10.0)
"""Seconds before each restart without a batch in between; there are no more of them."""


@dataclass
class Restarts:
    """The restarts of a job since its last batch.

    >>> restarts = Restarts()
    >>> [restarts.next_pause(batches=7) for _ in range(4)]
    [1.0, 3.0, 10.0, None]
    >>> restarts.next_pause(batches=8)
    1.0
    """

    count: int = 0
    batches: int = -1

    def next_pause(self, batches: int) -> float | None:
        """Return how many seconds to wait before the next restart, None when the job is to be given up.

        ``batches`` is how many have been committed so far: who makes progress starts to count anew.
        """
        if batches != self.batches:
            self.batches, self.count = batches, 0
        if self.count == len(PAUSES):
            return None
        self.count += 1
        return PAUSES[self.count - 1]
