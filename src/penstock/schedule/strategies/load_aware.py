"""Where nodes say that they are least busy (load-aware instance dispatch)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.schedule.cost import DEFAULT_WEIGHTS, Weights
from penstock.schedule.greedy import Queues, most_constrained_first
from penstock.schedule.index import NOWHERE, SnapshotIndex
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import ClusterSnapshot, Task
from penstock.schedule.state import initial_state


@dataclass(frozen=True)
class LoadAware:
    """Each task goes to the node with the least reported load, counting what it was given since.

    What a task asks for and what it uses differ; this trusts what is measured. That OVERLOADED nodes get
    nothing new is a rule for all strategies; tasks that only they could take are placed in a second pass.
    """

    weights: Weights = DEFAULT_WEIGHTS

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the placement of all tasks."""
        index = SnapshotIndex(snapshot)
        movable, state = initial_state(index, demands, self.weights)
        load = [node.load for node in index.nodes]
        for task in movable:
            current = index.current[task]
            if current != NOWHERE:  # It may leave: what it takes there is not the node's own.
                load[current] = max(load[current] - index.cpu[task] * index.per_core[current], 0.0)
        queues = Queues(state, lambda node: load[node])
        for task in most_constrained_first(index, movable):
            for node in queues.emptiest(task, 1):
                state.put(task, node)
                load[node] += index.cpu[task] * index.per_core[node]
        return state.matrix()
