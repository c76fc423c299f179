"""The cost of a placement: five terms, each between 0 and about 1, and their weights."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import hypot

from penstock.schedule.placement_model import ClusterSnapshot, Matrix


@dataclass(frozen=True)
class Weights:
    """How much each term counts.

    A job is split over racks only where it fits into none, and then where little is cut: all jobs share the
    links between switches, and no balance makes up for one that is full. Inside a rack, balance counts.
    """

    imbalance: float = 1.0
    cross_node: float = 0.05
    cross_rack: float = 4.0
    moves: float = 0.02
    fit: float = 0.02


DEFAULT_WEIGHTS = Weights()


@dataclass(frozen=True)
class Cost:
    """The terms of a placement's cost before they are weighted, and the weighted total.

    - ``imbalance`` is S of SpeedStream (V.D): with ``cpu_i`` and ``mem_i`` the shares of the cores and of the
      memory of node i that are asked for, ``mu`` their means over all n nodes,
      ``S = 1/(2n) * sum_i sqrt((cpu_i - mu_cpu)^2 + (mem_i - mu_mem)^2)``.
    - ``cross_node``: the share of all traffic that is between tasks on different nodes.
    - ``cross_rack``: the share that is between different racks, which goes through their switches. Traffic
      through an uplink with a k-th of the largest uplink's bandwidth counts k times.
    - ``moves``: the share of the running tasks that change their node.
    - ``fit``: the mean over the nodes of ``|cpu_i - mem_i|``: what is left of one resource where the other
      is used up is wasted.
    """

    imbalance: float
    cross_node: float
    cross_rack: float
    moves: float
    fit: float
    total: float

    @classmethod
    def of(
        cls,
        weights: Weights,
        imbalance: float,
        cross_node: float,
        cross_rack: float,
        moves: float,
        fit: float,
    ) -> Cost:
        """Weigh the terms."""
        total = (
            weights.imbalance * imbalance
            + weights.cross_node * cross_node
            + weights.cross_rack * cross_rack
            + weights.moves * moves
            + weights.fit * fit
        )
        return cls(imbalance, cross_node, cross_rack, moves, fit, total)

    def to_plain(self) -> dict[str, float]:
        """Return what JSON can hold."""
        return asdict(self)


def cost(matrix: Matrix, snapshot: ClusterSnapshot, weights: Weights = DEFAULT_WEIGHTS) -> Cost:
    """Return the cost of a placement, computed from scratch. Tests compare the incremental count with it.

    >>> from penstock.schedule.placement_model import Node, Task
    >>> tasks = (Task("s", "job", memory=1), Task("t", "job", memory=1))
    >>> snapshot = ClusterSnapshot((Node("a", 2, 2), Node("b", 2, 2)), tasks)
    >>> cost(Matrix({"s": "a", "t": "b"}), snapshot).imbalance
    0.0
    >>> round(cost(Matrix({"s": "a", "t": "a"}), snapshot).imbalance, 4)
    0.3536
    """
    used = _shares(matrix, snapshot)
    cross_node, cross_rack = _crossing(matrix, snapshot)
    running = [task for task in snapshot.tasks if task.current in snapshot.node_named]
    moved = sum(1 for task in running if matrix.places.get(task.id) != task.current)
    return Cost.of(
        weights,
        imbalance(used),
        cross_node,
        cross_rack,
        moved / max(len(running), 1),
        sum(abs(cpu - memory) for cpu, memory in used) / max(len(used), 1),
    )


def imbalance(shares: list[tuple[float, float]]) -> float:
    """Return S for the shares of cores and of memory in use, node by node."""
    n = len(shares)
    if not n:
        return 0.0
    mean_cpu = sum(cpu for cpu, _ in shares) / n
    mean_memory = sum(memory for _, memory in shares) / n
    return sum(hypot(cpu - mean_cpu, memory - mean_memory) for cpu, memory in shares) / (2 * n)


def scarcity(snapshot: ClusterSnapshot) -> dict[str, float]:
    """Return for each rack how many times traffic through its uplink counts; 1 for the best uplink."""
    known = {link.rack: link.bandwidth for link in snapshot.links if link.bandwidth > 0}
    best = max(known.values(), default=1.0)
    return {rack: best / bandwidth for rack, bandwidth in known.items()}


def _shares(matrix: Matrix, snapshot: ClusterSnapshot) -> list[tuple[float, float]]:
    cpu = {node.name: 0.0 for node in snapshot.nodes}
    memory = {node.name: 0.0 for node in snapshot.nodes}
    for task in snapshot.tasks:
        node = matrix.places.get(task.id)
        if node in cpu:
            cpu[node] += task.cpu
            memory[node] += task.memory
    return [
        (cpu[node.name] / max(node.cores, 1e-9), memory[node.name] / max(node.memory, 1))
        for node in snapshot.nodes
    ]


def _crossing(matrix: Matrix, snapshot: ClusterSnapshot) -> tuple[float, float]:
    nodes, counts = snapshot.node_named, scarcity(snapshot)
    total = between_nodes = between_racks = 0.0
    for pair in snapshot.traffic:
        total += pair.rate
        first = nodes.get(matrix.places.get(pair.first, ""))
        second = nodes.get(matrix.places.get(pair.second, ""))
        if first is None or second is None or first is second:
            continue
        between_nodes += pair.rate
        if first.rack != second.rack:
            between_racks += pair.rate * max(counts.get(first.rack, 1.0), counts.get(second.rack, 1.0))
    if total <= 0:
        return 0.0, 0.0
    return between_nodes / total, between_racks / total
