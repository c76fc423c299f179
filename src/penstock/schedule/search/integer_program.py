"""A mixed-integer program, and HiGHS that solves it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

Terms = dict[int, float]
"""Coefficients by variable."""


@dataclass(frozen=True)
class Row:
    """A constraint: low ≤ the sum of the terms ≤ high."""

    terms: Terms
    low: float
    high: float


@dataclass
class IntegerProgram:
    """A mixed-integer program to minimise. Variables are numbers; all lie between 0 and their upper bound."""

    cost: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def variable(self, cost: float = 0.0, upper: float = 1.0, *, whole: bool = False) -> int:
        """Add a variable and return its number."""
        self.cost.append(cost)
        self.upper.append(upper)
        self.whole.append(whole)
        return len(self.cost) - 1

    def require(self, terms: Mapping[int, float], low: float = -math.inf, high: float = math.inf) -> None:
        """Add a constraint, scaled so that its largest coefficient is 1: solvers' tolerances are absolute."""
        kept = {number: value for number, value in terms.items() if value}
        largest = max((abs(value) for value in kept.values()), default=0.0)
        if largest and (low > -math.inf or high < math.inf):
            scaled = {number: value / largest for number, value in kept.items()}
            self.rows.append(Row(scaled, low / largest, high / largest))

    def solve_highs(self, seconds: float, gap: float) -> Any:
        """Solve with HiGHS in this process, within a time and to a relative gap; return what scipy returns.

        scipy is imported here, because it is an optional dependency.
        """
        import numpy
        from scipy import sparse
        from scipy.optimize import Bounds, LinearConstraint, milp

        ends = numpy.cumsum([0, *(len(row.terms) for row in self.rows)])
        matrix = sparse.csr_array(
            (
                numpy.fromiter(chain.from_iterable(row.terms.values() for row in self.rows), float),
                numpy.fromiter(chain.from_iterable(row.terms for row in self.rows), int),
                ends,
            ),
            shape=(len(self.rows), len(self.cost)),
        )
        return milp(
            numpy.array(self.cost),
            integrality=numpy.array(self.whole, dtype=int),
            bounds=Bounds(numpy.zeros(len(self.cost)), numpy.array(self.upper)),
            constraints=LinearConstraint(
                matrix, [row.low for row in self.rows], [row.high for row in self.rows]
            ),
            options={"time_limit": seconds, "mip_rel_gap": gap},
        )
