"""The strategies, one a file. The first is the default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.errors import PenstockError
from penstock.schedule.custom import is_custom
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import ClusterSnapshot, Task
from penstock.schedule.strategies.balanced import Balanced
from penstock.schedule.strategies.exact import Exact
from penstock.schedule.strategies.load_aware import LoadAware
from penstock.schedule.strategies.packed import Packed
from penstock.schedule.strategies.traffic import TrafficFirst


class Strategy(Protocol):
    """Decides where tasks run. A user's own strategy is a class with this method, made without arguments."""

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return where all tasks run.

        ``demands`` are the tasks to be placed. The other tasks of the snapshot stay where they are. A task
        that finds no node is left out.
        """
        ...


class UnknownStrategyError(PenstockError):
    """There is no strategy of that name."""


STRATEGIES: Mapping[str, Callable[[], Strategy]] = {
    "balanced": Balanced,
    "packed": Packed,
    "traffic": TrafficFirst,
    "load-aware": LoadAware,
    "exact": Exact,
}


def builtin_strategy(name: str) -> Strategy:
    """Return one of Penstock's own strategies.

    >>> named("fastest")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    penstock.schedule.strategies.UnknownStrategyError: there is no strategy 'fastest': use one of ...
    """
    if name not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise UnknownStrategyError(
            f"there is no strategy {name!r}: use one of {known}, or MODULE:CLASS for one of your own"
        )
    return STRATEGIES[name]()


def check_strategy_name(name: str) -> str:
    """Return a name that can be a strategy's; whether a user's class is there is found when it is asked.

    >>> known("packed"), known("mine.placing:Nearest")
    ('packed', 'mine.placing:Nearest')
    """
    if not is_custom(name):
        builtin_strategy(name)
    return name
