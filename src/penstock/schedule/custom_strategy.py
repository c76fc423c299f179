"""A user's own strategy.

The question written to its process, the answer read from it, and the errors of both. Starting the process
is left to the caller's runner.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from math import inf
from typing import cast

from penstock.cluster.document_codec import DocumentError, of_plain
from penstock.errors import PenstockError, shorten
from penstock.schedule.placement_model import ClusterSnapshot, Matrix, MatrixError, Task

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_LAST = 300
"""How much of the last output of a process is shown."""


@dataclass(frozen=True)
class StrategyProcessResult:
    """How the process of a strategy ended."""

    code: int | None
    """None if it was ended because its time was over."""
    answer: bytes
    """The answer, without the output of the user's code."""
    said: str = ""
    """What it wrote to standard error."""


Runner = Callable[[bytes, float], StrategyProcessResult]
"""Runs ``python -m penstock.schedule.custom_strategy_process`` with an input and a time limit in seconds."""


class CustomStrategyError(PenstockError):
    """A user's strategy cannot be used; ``kind`` is the reason in one word."""

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
        """Return the matrix of the user's class; raises CustomStrategyError."""
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
    """Run a user's strategy in its own process; raises CustomStrategyError for any failure."""
    if not _NAME.fullmatch(name):
        raise CustomStrategyError(name, "name", "its name must be MODULE:CLASS")
    finished = runner(write_question(name, snapshot, tuple(task.id for task in demands)), seconds)
    if finished.code is None:
        raise CustomStrategyError(name, "time", f"it did not answer within {seconds:g} s")
    if finished.code != 0:
        said = finished.said.strip()[-_LAST:] or "it wrote nothing to standard error"
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
        raise CustomStrategyError(
            name, "nonsense", f"its answer is not valid JSON: {shorten(answer)}"
        ) from None
    if not isinstance(content, dict):
        raise CustomStrategyError(name, "nonsense", f"its answer is no object: {shorten(content)}")
    if "error" in content:
        raise CustomStrategyError(name, "raised", str(content["error"]))
    try:
        return Matrix.of_plain(content.get("matrix"))
    except MatrixError as error:
        raise CustomStrategyError(name, "nonsense", str(error)) from None


_TOLD = 5
"""How many faults are named."""


def write_question(strategy: str, snapshot: ClusterSnapshot, demands: tuple[str, ...]) -> bytes:
    """Write what the process of a user's strategy reads."""
    question = {"strategy": strategy, "snapshot": asdict(snapshot), "demands": list(demands)}
    return json.dumps(question, separators=(",", ":")).encode()


def read_snapshot(given: object) -> ClusterSnapshot:
    """Read a snapshot from what JSON has of it; raises DocumentError for what no cluster can be.

    >>> read_snapshot({"nodes": [{"name": "n", "cores": 2, "memory": 1024}], "tasks": []}).nodes[0].cores
    2.0
    """
    snapshot = cast(ClusterSnapshot, of_plain(ClusterSnapshot, given))
    faults = [*_twice(snapshot), *_impossible(snapshot)]
    if faults:
        raise DocumentError(f"invalid cluster snapshot: {'; '.join(faults[:_TOLD])}")
    return snapshot


def repeated(what: str, names: Iterable[str]) -> Iterator[str]:
    """Return a sentence about duplicate names.

    >>> list(repeated("node", ["a", "b", "a"]))
    ["node 'a' is there 2 times"]
    """
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what} {name!r} is there {count} times"


def _twice(snapshot: ClusterSnapshot) -> Iterator[str]:
    for what, names in (
        ("node", [node.name for node in snapshot.nodes]),
        ("task", [task.id for task in snapshot.tasks]),
        ("uplink of rack", [link.rack for link in snapshot.links]),
    ):
        yield from repeated(what, names)


def _impossible(snapshot: ClusterSnapshot) -> Iterator[str]:
    known = snapshot.task_named
    figures: list[tuple[str, float]] = []
    for node in snapshot.nodes:
        of = f"of node {node.name!r}"
        figures += [(f"cores {of}", node.cores), (f"memory {of}", node.memory)]
        figures += [(f"bandwidth {of}", node.bandwidth), (f"load {of}", node.load)]
    for task in snapshot.tasks:
        figures += [(f"cpu of task {task.id!r}", task.cpu), (f"memory of task {task.id!r}", task.memory)]
    for pair in snapshot.traffic:
        figures.append((f"rate between {pair.first!r} and {pair.second!r}", pair.rate))
        for name in (pair.first, pair.second):
            if name not in known:
                yield f"there is traffic of task {name!r}, which does not exist"
    figures += [(f"bandwidth of the uplink of rack {link.rack!r}", link.bandwidth) for link in snapshot.links]
    for what, figure in figures:
        if not 0 <= figure < inf:
            yield f"the {what} is {figure}"
