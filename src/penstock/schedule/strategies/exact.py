"""The best placement there is, for small clusters. It says why when it finds none."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.schedule.cost import DEFAULT_WEIGHTS, Weights, cost
from penstock.schedule.exact import SolverError, solve
from penstock.schedule.index import SnapshotIndex
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import ClusterSnapshot, Task
from penstock.schedule.state import initial_state
from penstock.schedule.strategies.balanced import Balanced


@dataclass(frozen=True)
class Exact:
    """Solve a mixed-integer program; what the default finds is taken if it is better in the time given."""

    weights: Weights = DEFAULT_WEIGHTS
    seconds: float = 10.0
    largest: int = 2000
    """With more pairs of a task and a node the solver would not come to an end."""

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the placement of all tasks; raises SolverError."""
        pairs = len(demands) * len(snapshot.nodes)
        if pairs > self.largest:
            raise SolverError(
                f"{len(demands)} tasks on {len(snapshot.nodes)} nodes are too many for an exact placement: "
                f"{pairs} pairs, and {self.largest} at most"
            )
        index = SnapshotIndex(snapshot)
        movable, kept = initial_state(index, demands, self.weights)
        solved = solve(index, movable, kept, self.weights, self.seconds)
        near = Balanced(self.weights).place(snapshot, demands)
        complete = len(near.places) == len(solved.matrix.places)
        if complete and cost(near, snapshot, self.weights).total < solved.total:
            return near
        return solved.matrix
