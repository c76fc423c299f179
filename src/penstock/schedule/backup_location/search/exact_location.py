"""The exact model of backup location, equations (3) to (5), as a mixed-integer program, and its solvers.

Each task τ has binary variables: x(τ, s), its backup is stored on s; y(τ, s), it is redeployed to s; u(τ), it
has no place; and q(τ, z), its transfer has rate z. The paper's objective b(τ)/Z(τ) is not linear in Z; with Z
from the finite ladder `LocationProblem.rates` it is: the sum of q(τ, z)·b(τ)/z. Continuous are a(τ, s), which
is 1 where store and redeploy server are both s, and r(τ, e), what the transfer takes of edge e: E2(τ, e)·Z(τ)
of equation (4), which a tree of servers and racks gives without a variable for each pair of servers.

Solvers are imported by the functions that solve.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.schedule.backup_location.backup_problem import (
    LocationChoice,
    LocationDecision,
    LocationProblem,
    Network,
    ProtectedTask,
    build_decision,
)
from penstock.schedule.search.integer_program import IntegerProgram, Terms


@dataclass(frozen=True)
class Variables:
    """A task's variables."""

    store: Mapping[int, int]
    """x by server."""
    redeploy: Mapping[int, int]
    """y by server."""
    rates: tuple[int, ...]
    """q in the order of `Problem.rates`."""
    without: int
    """u."""


class Formulation:
    """The program of a problem, and the way back from its solution to a decision."""

    def __init__(self, problem: LocationProblem) -> None:
        self.problem = problem
        self.network = Network(problem)
        self.program = IntegerProgram()
        self.variables: list[Variables] = []
        self._storing: dict[int, dict[int, Terms]] = defaultdict(lambda: defaultdict(dict))
        self._transfers: dict[int, dict[int, Terms]] = defaultdict(lambda: defaultdict(dict))
        self._cpu: dict[int, dict[int, Terms]] = defaultdict(lambda: defaultdict(dict))
        self._stored: dict[int, Terms] = defaultdict(dict)
        for task in problem.tasks:
            self._task(task)
        for number, server in enumerate(problem.servers):
            self._worst({}, self._cpu[number], server.free_cpu)
            self.program.require(self._stored[number], high=server.storage)
        for edge, limit in enumerate(self.network.capacity):
            if limit < math.inf:
                self._edge(edge, limit)

    def _task(self, task: ProtectedTask) -> None:
        program, network = self.program, self.network
        source = network.index[task.server]
        others = [server for server in range(len(network.names)) if server != source]
        store = {server: program.variable(whole=True) for server in others}
        names = network.names
        redeploy = {
            server: program.variable(
                whole=True, upper=float(task.allowed is None or names[server] in task.allowed)
            )
            for server in others
        }
        same = {server: program.variable() for server in others}
        rates = tuple(program.variable(task.backup / rate, whole=True) for rate in self.problem.rates)
        without = program.variable(self.problem.unprotected_seconds(task), whole=True)
        self.variables.append(Variables(store, redeploy, rates, without))

        # Equation (5): each task is stored once and redeployed once, and neither where it works.
        program.require({**dict.fromkeys(store.values(), 1.0), without: 1.0}, 1.0, 1.0)
        program.require({**dict.fromkeys(redeploy.values(), 1.0), without: 1.0}, 1.0, 1.0)
        for server in others:
            program.require({same[server]: 1.0, store[server]: -1.0}, high=0.0)
            program.require({same[server]: 1.0, redeploy[server]: -1.0}, high=0.0)
        # A task that is stored and redeployed on different servers has one rate.
        program.require({**dict.fromkeys((*same.values(), *rates, without), 1.0)}, 1.0, 1.0)

        for server in others:
            self._cpu[server][source][redeploy[server]] = task.cpu
            self._stored[server][store[server]] = task.backup
        for server in others:
            for edge in network.path(source, server):
                self._storing[edge][source][store[server]] = task.store_rate
        for edge, limit in enumerate(network.capacity):
            if limit < math.inf and edge != source:
                self._transfer(source, edge, Variables(store, redeploy, rates, without))

    def _transfer(self, source: int, edge: int, task: Variables) -> None:
        """Require r(τ, e) ≥ Z(τ) where one of store and redeploy server is behind the edge, the other not."""
        servers = len(self.network.names)
        behind = [edge] if edge < servers else self.network.members[edge - servers]
        behind = [server for server in behind if server != source]
        highest = self.problem.rates[0]
        # In units of the highest rate, like all variables between 0 and 1: solvers lose tiny coefficients.
        carried = self.program.variable()
        self._transfers[edge][source][carried] = highest
        rates = dict(zip(task.rates, self.problem.rates, strict=True))
        for first, second in ((task.store, task.redeploy), (task.redeploy, task.store)):
            terms = {carried: highest, **{number: -rate for number, rate in rates.items()}}
            for server in behind:
                terms[first[server]] = -highest
                terms[second[server]] = highest
            self.program.require(terms, low=-highest)

    def _edge(self, edge: int, limit: float) -> None:
        """Require equation (4) of an edge, for the failure of each server and for none."""
        storing: Terms = {}
        for terms in self._storing[edge].values():
            storing.update(terms)
        self.program.require(storing, high=limit)
        brought: dict[int, Terms] = {}
        for source, terms in sorted(self._transfers[edge].items()):
            own = self._storing[edge].get(source, {})
            brought[source] = {**terms, **{number: -rate for number, rate in own.items()}}
        self._worst(storing, brought, limit)

    def _worst(self, always: Terms, brought: Mapping[int, Terms], limit: float) -> None:
        """Require that what is always there and the k largest of what failing servers bring stay in the
        limit.

        The sum of the k largest is the least k·t + Σ v with v ≥ what a server brings minus t and v ≥ 0.
        """
        failures = self.problem.failures
        if failures == 1:
            for terms in brought.values():
                self.program.require(_sum(always, terms), high=limit)
            return
        # In units of the limit, which neither can exceed.
        threshold = self.program.variable()
        total = _sum(always, {threshold: failures * limit})
        for terms in brought.values():
            over = self.program.variable()
            total[over] = limit
            self.program.require(_sum({over: limit, threshold: limit}, terms, sign=-1.0), low=0.0)
        self.program.require(total, high=limit)

    def decision(self, values: list[float], method: str, *, optimal: bool) -> LocationDecision:
        """Read a decision from the values of the variables."""
        names = self.network.names
        choices = []
        for task, variables in zip(self.problem.tasks, self.variables, strict=True):
            if values[variables.without] > 0.5:
                continue
            store = max(variables.store, key=lambda server: values[variables.store[server]])
            redeploy = max(variables.redeploy, key=lambda server: values[variables.redeploy[server]])
            if store == redeploy:
                choices.append(
                    LocationChoice(task.name, names[store], names[store], reason=f"solved with {method}")
                )
                continue
            chosen = max(range(len(variables.rates)), key=lambda rung: values[variables.rates[rung]])
            rate = self.problem.rates[chosen]
            choices.append(
                LocationChoice(
                    task.name,
                    names[store],
                    names[redeploy],
                    rate,
                    task.backup / rate,
                    f"solved with {method}",
                )
            )
        return build_decision(self.problem, method, choices, {}, optimal=optimal)


def _sum(first: Terms, second: Terms, sign: float = 1.0) -> Terms:
    total = dict(first)
    for number, value in second.items():
        total[number] = total.get(number, 0.0) + sign * value
    return total


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
    # PuLP asks CBC to count elapsed time; the limit here is one of processor time, whatever else computes.
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
    formulation = Formulation(problem)
    program = formulation.program
    if not program.cost:
        return Solution(formulation.decision([], "highs", optimal=True), "there is nothing to decide")
    result = program.solve_highs(limit, 1e-6)
    if result.x is None:
        return Solution(None, str(result.message))
    optimal = result.status == 0
    return Solution(formulation.decision(list(result.x), "highs", optimal=optimal), str(result.message))
