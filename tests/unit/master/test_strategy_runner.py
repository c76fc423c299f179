"""What a strategy that takes its time is asked, and to which question its answer belongs."""

from __future__ import annotations

import threading

import pytest

from penstock.master.strategy_runner import BackgroundStrategy, StrategyAnswers
from penstock.schedule.custom_strategy import StrategyPendingError
from penstock.schedule.placement_model import ClusterSnapshot, Matrix, Node, Task


class First:
    """Puts everything on the first node, and notes what it was asked about."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        self.asked.append([node.name for node in snapshot.nodes])
        return Matrix({task.id: snapshot.nodes[0].name for task in demands})


def test_an_answer_that_nobody_fetched_is_not_given_when_the_nodes_are_others() -> None:
    """It would name a node that is gone, and be refused as a wrong answer."""
    woken = threading.Event()
    strategy = First()
    background = BackgroundStrategy("mine:First", "bundle", strategy, StrategyAnswers(woken.set))
    task = Task("job/driver", "job")
    both = ClusterSnapshot((Node("a", 2, 1 << 30), Node("b", 2, 1 << 30)), ())
    left = ClusterSnapshot((Node("b", 2, 1 << 30),), ())

    def answer(snapshot: ClusterSnapshot) -> Matrix:
        woken.clear()
        with pytest.raises(StrategyPendingError):
            background.place(snapshot, (task,))
        assert woken.wait(30.0)
        return background.place(snapshot, (task,))

    with pytest.raises(StrategyPendingError):
        background.place(both, (task,))  # Nobody fetches the answer.
    assert woken.wait(30.0)
    assert answer(left) == Matrix({task.id: "b"})
    assert strategy.asked == [["a", "b"], ["b"]]
