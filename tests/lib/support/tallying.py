"""Tasks whose output shows whether each record was counted once: visits are numbered without gaps."""

from __future__ import annotations

from typing import Any

import penstock as ps


class Tally(ps.StatefulTask):
    """Numbers the visits of each key: visit n of a key is emitted once, whatever batch it is in."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        seen = state or 0
        return seen + len(values), [(key, (seen + n, value)) for n, value in enumerate(values, start=1)]


class Route(ps.Task):
    """Writes each visit of a ``(number, rounds)`` down, and sends every so manyth number round once more."""

    outputs = ("again", "out")

    def __init__(self, every: int) -> None:
        self._every = every

    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        for record in inputs["in"]:
            visit, (number, done) = record.value
            outputs.emit(record.key, (visit, number), port="out")
            if done < rounds(number, self._every):
                outputs.emit(record.key, (number, done + 1), port="again")


def rounds(number: int, every: int) -> int:
    """Return how often a number goes round."""
    return 1 if number % every == 0 else 0
