"""The user's own strategies: they run in a process of their own, and can do nothing worse than be refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import PenstockError, shorten
from penstock.schedule.matrix import Matrix, MatrixError
from penstock.schedule.model import ClusterSnapshot, Task
from penstock.schedule.plain import write_question

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_LAST = 300
"""How much of what a process wrote last is shown."""


@dataclass(frozen=True)
class StrategyProcessResult:
    """How the process of a strategy ended."""

    code: int | None
    """None if it was ended because its time was over."""
    answer: bytes
    """What it answered, and nothing of what the user's code printed."""
    said: str = ""
    """What it wrote to standard error."""


Runner = Callable[[bytes, float], StrategyProcessResult]
"""Runs ``python -m penstock.schedule.custom_process`` with an input, for so many seconds at most."""


class CustomStrategyError(PenstockError):
    """A user's strategy cannot be used; ``kind`` says in one word why."""

    def __init__(self, strategy: str, kind: str, reason: str) -> None:
        self.strategy = strategy
        self.kind = kind
        """``name``, ``time``, ``died``, ``raised`` or ``nonsense``."""
        self.reason = reason
        super().__init__(f"strategy {strategy!r}: {reason}")

    def __reduce__(self) -> tuple[object, ...]:
        return (CustomStrategyError, (self.strategy, self.kind, self.reason))


class StrategyPendingError(PenstockError):
    """A strategy is asked and has not answered yet: ask again later."""


@dataclass(frozen=True)
class CustomStrategy:
    """A user's strategy, ``module:Class``, as one of Penstock's."""

    name: str
    runner: Runner
    seconds: float = 5.0

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return what the user's class says; raises CustomStrategyError."""
        return run_custom(self.name, snapshot, demands, self.seconds, self.runner)


def is_custom(name: str) -> bool:
    """Say whether a strategy's name is that of a user's class.

    >>> is_custom("mine.placing:Nearest"), is_custom("balanced")
    (True, False)
    """
    return ":" in name


def run_custom(
    name: str, snapshot: ClusterSnapshot, demands: tuple[Task, ...], seconds: float, runner: Runner
) -> Matrix:
    """Ask a user's strategy in its own process; raises CustomStrategyError for whatever goes wrong."""
    if not _NAME.fullmatch(name):
        raise CustomStrategyError(name, "name", "its name must be MODULE:CLASS")
    finished = runner(write_question(name, snapshot, tuple(task.id for task in demands)), seconds)
    if finished.code is None:
        raise CustomStrategyError(name, "time", f"it did not answer within {seconds:g} s")
    if finished.code != 0:
        said = finished.said.strip()[-_LAST:] or "it said nothing"
        raise CustomStrategyError(name, "died", f"its process ended with {finished.code}: {said}")
    return read_answer(name, finished.answer)


def read_answer(name: str, answer: bytes) -> Matrix:
    """Read what the process of a strategy answered; raises CustomStrategyError.

    >>> read_answer("mine:Nearest", b'{"matrix": {"t": "n1"}}')
    Matrix(places={'t': 'n1'})
    """
    try:
        content = json.loads(answer)
    except (ValueError, RecursionError):
        raise CustomStrategyError(name, "nonsense", f"its answer is no JSON: {shorten(answer)}") from None
    if not isinstance(content, dict):
        raise CustomStrategyError(name, "nonsense", f"its answer is no object: {shorten(content)}")
    if "error" in content:
        raise CustomStrategyError(name, "raised", str(content["error"]))
    try:
        return Matrix.of_plain(content.get("matrix"))
    except MatrixError as error:
        raise CustomStrategyError(name, "nonsense", str(error)) from None
