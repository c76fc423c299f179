"""Solves the exact model with CBC (through PuLP) or with HiGHS (through SciPy), within a time limit.

Both solvers are imported when they are asked for: the master does not carry them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain

from penstock.schedule.location.formulation import Formulation
from penstock.schedule.location.model import LocationDecision, LocationProblem


@dataclass(frozen=True)
class Solution:
    """What a solver came to."""

    decision: LocationDecision | None
    """None if it found nothing within its time."""
    status: str
    """In the solver's words."""


def solve_cbc(problem: LocationProblem, *, limit: float = 60.0, first: bool = False) -> Solution:
    """Solve with CBC, which runs as a process, within so many seconds of processor time.

    With ``first``, take its first solution, as the paper did.
    """
    import pulp

    formulation = Formulation(problem)
    program = formulation.program
    model = pulp.LpProblem("backup_location", pulp.LpMinimize)
    variables = [
        pulp.LpVariable(f"v{number}", 0, upper, pulp.LpInteger if whole else pulp.LpContinuous)
        for number, (upper, whole) in enumerate(zip(program.upper, program.whole, strict=True))
    ]
    costs = [(variables[number], cost) for number, cost in enumerate(program.cost) if cost]
    model.setObjective(pulp.LpAffineExpression(costs))
    for row in program.rows:
        terms = pulp.LpAffineExpression([(variables[number], value) for number, value in row.terms.items()])
        if row.low == row.high:
            model.addConstraint(terms == row.low)
            continue
        if row.high < math.inf:
            model.addConstraint(terms <= row.high)
        if row.low > -math.inf:
            model.addConstraint(terms >= row.low)
    # PuLP asks CBC to count elapsed time; the limit here is one of processor time, whoever else computes.
    options = ["maxSolutions 1"] if first else []
    model.solve(pulp.PULP_CBC_CMD(msg=False, timeLimit=limit, timeMode="cpu", threads=1, options=options))
    status = pulp.LpSolution[model.sol_status]
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return Solution(None, status)
    values = [variable.value() or 0.0 for variable in variables]
    optimal = model.sol_status == pulp.LpSolutionOptimal and not first
    return Solution(formulation.decision(values, "cbc", optimal=optimal), status)


def solve_highs(problem: LocationProblem, *, limit: float = 60.0) -> Solution:
    """Solve with HiGHS, in this process."""
    import numpy
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    formulation = Formulation(problem)
    program = formulation.program
    if not program.cost:
        return Solution(formulation.decision([], "highs", optimal=True), "there is nothing to decide")
    ends = numpy.cumsum([0, *(len(row.terms) for row in program.rows)])
    matrix = sparse.csr_array(
        (
            numpy.fromiter(chain.from_iterable(row.terms.values() for row in program.rows), float),
            numpy.fromiter(chain.from_iterable(row.terms for row in program.rows), int),
            ends,
        ),
        shape=(len(program.rows), len(program.cost)),
    )
    result = milp(
        numpy.array(program.cost),
        integrality=numpy.array(program.whole, dtype=int),
        bounds=Bounds(numpy.zeros(len(program.cost)), numpy.array(program.upper)),
        constraints=LinearConstraint(
            matrix, [row.low for row in program.rows], [row.high for row in program.rows]
        ),
        options={"time_limit": limit, "mip_rel_gap": 1e-6},
    )
    if result.x is None:
        return Solution(None, str(result.message))
    optimal = result.status == 0
    return Solution(formulation.decision(list(result.x), "highs", optimal=optimal), str(result.message))
