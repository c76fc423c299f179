"""The best placement there is, as a mixed-integer program for HiGHS: for small clusters.

All terms of the cost are linear in X but the imbalance, a sum of lengths of vectors. A length is the
largest of all its projections: some directions are given at first, and each solution adds those that it
has got wrong, until the program's bound and the true cost meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, hypot, inf, pi, sin

from penstock.errors import PenstockError
from penstock.schedule.placement_cost import Weights, cost
from penstock.schedule.placement_model import Matrix
from penstock.schedule.search.integer_program import IntegerProgram, Terms
from penstock.schedule.search.placement_state import NOWHERE, PlacementState, SnapshotIndex

DIRECTIONS = 16
ROUNDS = 8
CLOSE = 1e-4
"""A relative gap between bound and cost that is as good as none."""


class SolverError(PenstockError):
    """There is no exact placement; the message says why."""


@dataclass(frozen=True)
class Solved:
    """What the solver found."""

    matrix: Matrix
    total: float
    bound: float
    """No placement costs less."""

    @property
    def proven(self) -> bool:
        """Whether this is the best."""
        return self.total - self.bound <= CLOSE * max(self.total, CLOSE)


class Model:
    """The program of one snapshot: which tasks may move, where all others are."""

    def __init__(
        self, index: SnapshotIndex, movable: Sequence[int], kept: PlacementState, weights: Weights
    ) -> None:
        self.index, self.movable, self.kept, self.weights = index, movable, kept, weights
        self.program = IntegerProgram()
        self.x = {task: self._choices(task) for task in movable}
        self._rooms()
        self._imbalance()
        self._fit()
        self._traffic()

    def _choices(self, task: int) -> dict[int, int]:
        index = self.index
        current = index.current[task]
        moving = self.weights.moves / index.running if current != NOWHERE else 0.0
        choices = {
            node: self.program.variable(0.0 if node == current else moving, whole=True)
            for node in index.eligible[task].nodes
            if self.kept.fits(task, node)
        }
        if not choices:
            raise SolverError(f"no node can take {index.tasks[task].id}")
        self.program.require(dict.fromkeys(choices.values(), 1.0), 1.0, 1.0)
        return choices

    def _rooms(self) -> None:
        index, kept = self.index, self.kept
        for node in range(len(index.nodes)):
            here = [(task, at[node]) for task, at in self.x.items() if node in at]
            cores, memory = index.cores[node] - kept.cpu[node], index.memory[node] - kept.memory[node]
            self.program.require({at: index.cpu[task] for task, at in here}, -inf, cores)
            self.program.require(
                {at: index.bytes[task] / (1 << 20) for task, at in here}, -inf, memory / (1 << 20)
            )
            for group in sorted({index.apart[task] for task, _ in here if index.apart[task]}):
                members = {at: 1.0 for task, at in here if index.apart[task] == group}
                self.program.require(members, -inf, 1.0)

    def _shares(self, node: int) -> tuple[Terms, Terms, float, float]:
        """Return the shares of a node's cores and memory: what depends on X, and what is kept."""
        index, kept = self.index, self.kept
        here = [(task, at[node]) for task, at in self.x.items() if node in at]
        return (
            {at: index.cpu[task] * index.per_core[node] for task, at in here},
            {at: index.bytes[task] * index.per_byte[node] for task, at in here},
            kept.cpu[node] * index.per_core[node],
            kept.memory[node] * index.per_byte[node],
        )

    def _imbalance(self) -> None:
        count = len(self.index.nodes)
        self.shares = [self._shares(node) for node in range(count)]
        self.mean_cpu: Terms = {}
        self.mean_memory: Terms = {}
        for cpu, memory, _, _ in self.shares:
            self.mean_cpu.update((at, share / count) for at, share in cpu.items())
            self.mean_memory.update((at, share / count) for at, share in memory.items())
        self.kept_cpu = sum(share[2] for share in self.shares) / count
        self.kept_memory = sum(share[3] for share in self.shares) / count
        price = self.weights.imbalance / (2 * count)
        self.lengths = [self.program.variable(price, inf) for _ in range(count)]
        for node in range(count):
            for step in range(DIRECTIONS):
                self.cut(node, 2 * pi * step / DIRECTIONS, None)

    def cut(self, node: int, angle: float, direction: tuple[float, float] | None) -> None:
        """Ask that the length of a node's deviation is at least its projection on a direction."""
        along_cpu, along_memory = direction or (cos(angle), sin(angle))
        cpu, memory, kept_cpu, kept_memory = self.shares[node]
        terms: Terms = {self.lengths[node]: 1.0}
        for at, share in self.mean_cpu.items():
            terms[at] = along_cpu * (share - cpu.get(at, 0.0))
            terms[at] += along_memory * (self.mean_memory[at] - memory.get(at, 0.0))
        least = along_cpu * (kept_cpu - self.kept_cpu) + along_memory * (kept_memory - self.kept_memory)
        self.program.require(terms, least, inf)

    def _fit(self) -> None:
        for cpu, memory, kept_cpu, kept_memory in self.shares:
            skew = self.program.variable(self.weights.fit / len(self.shares), inf)
            for sign in (1, -1):
                terms: Terms = {skew: 1.0}
                terms.update((at, -sign * (cpu[at] - memory[at])) for at in cpu)
                self.program.require(terms, sign * (kept_cpu - kept_memory), inf)

    def _traffic(self) -> None:
        index, weights = self.index, self.weights
        for first, pairs in enumerate(index.neighbours):
            for second, rate in pairs:
                if first < second and (first in self.x or second in self.x):
                    share = rate * index.per_rate
                    self._apart(first, second, weights.cross_node * share, range(len(index.nodes)), None)
                    self._apart(first, second, weights.cross_rack * share, index.rack, index.rack_counts)

    def _apart(
        self, first: int, second: int, price: float, part: Sequence[int], counts: Sequence[float] | None
    ) -> None:
        """Price that two tasks are in different parts: nodes, or racks."""
        if price <= 0 or NOWHERE in (self._fixed(first), self._fixed(second)):
            return
        apart = self.program.variable(price, inf)
        for number in sorted(set(part)):
            weight = counts[number] if counts else 1.0
            for one, two in ((first, second), (second, first)):
                terms: Terms = {apart: 1.0}
                least = 0.0
                for task, sign in ((one, -weight), (two, weight)):
                    fixed = self._fixed(task)
                    if fixed is None:
                        terms.update((at, sign) for node, at in self.x[task].items() if part[node] == number)
                    elif part[fixed] == number:
                        least -= sign
                self.program.require(terms, least, inf)

    def _fixed(self, task: int) -> int | None:
        return None if task in self.x else self.kept.place[task]


def solve(
    index: SnapshotIndex, movable: Sequence[int], kept: PlacementState, weights: Weights, seconds: float
) -> Solved:
    """Return the best placement of the movable tasks; raises SolverError."""
    if not movable:
        matrix = kept.matrix()
        total = cost(matrix, index.snapshot, weights).total
        return Solved(matrix, total, total)
    model = Model(index, movable, kept, weights)
    constant = _constant(index, model)
    best: Solved | None = None
    for _ in range(ROUNDS):
        try:
            answer = model.program.solve_highs(seconds / ROUNDS, CLOSE / 10)
        except ImportError as error:
            raise SolverError("the solver is not installed: pip install penstock[solvers]") from error
        if answer.x is None:
            break
        for task, choices in model.x.items():
            kept.put(task, max(choices, key=lambda node: (answer.x[choices[node]], -node)))
        matrix = kept.matrix()
        total = cost(matrix, index.snapshot, weights).total
        bound = max((answer.mip_dual_bound or 0.0) + constant, best.bound if best else 0.0)
        if best is None or total < best.total:
            best = Solved(matrix, total, bound)
        best = Solved(best.matrix, best.total, bound)
        kept_shares = [_deviation(model, node, answer.x) for node in range(len(index.nodes))]
        for task in movable:
            kept.put(task, NOWHERE)
        if best.proven:
            break
        for node, (cpu, memory) in enumerate(kept_shares):
            length = hypot(cpu, memory)
            if length > 0:
                model.cut(node, 0.0, (cpu / length, memory / length))
    if best is None:
        raise SolverError(f"the solver found no placement: {answer.message}")
    return best


def _deviation(model: Model, node: int, x: Sequence[float]) -> tuple[float, float]:
    """Return how far the shares of a node are from the means in a solution."""
    cpu, memory, kept_cpu, kept_memory = model.shares[node]
    return (
        kept_cpu
        - model.kept_cpu
        + sum((cpu.get(at, 0.0) - mean) * x[at] for at, mean in model.mean_cpu.items()),
        kept_memory
        - model.kept_memory
        + sum((memory.get(at, 0.0) - mean) * x[at] for at, mean in model.mean_memory.items()),
    )


def _constant(index: SnapshotIndex, model: Model) -> float:
    """Return the part of the cost that the movable tasks do not change: traffic and moves of the others."""
    kept, weights = model.kept, model.weights
    nodes = racks = 0.0
    for task, node in enumerate(kept.place):
        here_nodes, here_racks = kept.crossing(task, node)
        nodes += here_nodes / 2
        racks += here_racks / 2
    return (weights.cross_node * nodes + weights.cross_rack * racks) * index.per_rate
