"""What ``kill_job.py`` must give for the numbers from 0 on, computed without Penstock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

ROUNDS = 3


@dataclass(frozen=True)
class Expectation:
    """The output for so many numbers, keys, and one number in ``endless`` that would never leave the loop."""

    count: int
    keys: int
    endless: int

    def numbers(self) -> Counter[tuple[int, int]]:
        """Each number that leaves the loop, with its key."""
        return Counter((n % self.keys, n) for n in range(self.count) if n % self.endless)

    def visits(self) -> Counter[tuple[int, int]]:
        """The visits of each key, numbered from 1 without a gap."""
        total = Counter[int]()
        for number in range(self.count):
            # An endless number comes by once, and once more for each round that it is allowed.
            rounds = number % 3 if number % self.endless else ROUNDS
            total[number % self.keys] += rounds + 1
        return Counter((key, n + 1) for key, visits in total.items() for n in range(visits))

    def discarded(self) -> Counter[int]:
        """The numbers that the loop gives up."""
        return Counter(range(0, self.count, self.endless))
