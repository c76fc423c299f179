"""The world of a simulation: its clock, what will happen when, its dice, and what has happened."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from random import Random

from penstock.testing.memory_store import MemoryEnsemble

START = 1_000_000.0
"""The time at which every simulation begins: not 0, which means never in the documents."""
REMEMBERED = 400
"""So many of the last events are told of a seed that fails; all of one that is replayed."""
_DEEPEST = 12
_SERVERS_LOOK = 0.2
"""How often, in seconds, the servers look for sessions that have expired."""


class InvariantError(AssertionError):
    """Something happened that must never happen."""


class UnsettledError(InvariantError):
    """Something is not as it should be long after the last fault."""


class World:
    """Time passes only here, from event to event, in the order of (time, number).

    An actor may have the world go on while it is in the middle of something (:meth:`pass_time`): that is how
    a process is paused between reading and writing.
    """

    def __init__(self, seed: int, remembered: int | None = REMEMBERED) -> None:
        self.random = Random(seed)
        self.now = START
        self.ensemble = MemoryEnsemble(START)
        self.faulty = True
        """Whether faults happen; not any more once a simulation is to settle."""
        self.depth = 0
        self.events = 0
        self.told: deque[str] = deque(maxlen=remembered)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Have something happen later."""
        self._number += 1
        heapq.heappush(self._queue, (self.now + seconds, self._number, event))

    def run(self, until: float) -> None:
        """Let all happen that is due until a time."""
        while self._queue and self._queue[0][0] <= until:
            due, _, event = heapq.heappop(self._queue)
            if due > self.now:
                self._advance(due)
            self.events += 1
            event()
        if until > self.now:
            self._advance(until)

    def pass_time(self, seconds: float) -> bool:
        """Let the world go on in the middle of an event; False when too many wait like this already."""
        if self.depth >= _DEEPEST:
            return False
        self.depth += 1
        try:
            self.run(self.now + seconds)
        finally:
            self.depth -= 1
        return True

    def chance(self, probability: float) -> bool:
        """Roll the dice for a fault."""
        return self.faulty and self.random.random() < probability

    def tell(self, who: str, what: str) -> None:
        """Note what happened, for whoever replays a seed."""
        self.told.append(f"{self.now - START:9.3f} {who:<14} {what}")

    def _advance(self, now: float) -> None:
        self.now = now
        if now - self.ensemble.now >= _SERVERS_LOOK:
            self.ensemble.advance(now)
