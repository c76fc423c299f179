"""Builds the backup location problem from a described cluster and a placement."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.errors import PenstockError
from penstock.schedule.backup_location import (
    LocationDecision,
    LocationProblem,
    Server,
    Uplink,
    algorithm1,
    solve,
)
from penstock.schedule.backup_location import ProtectedTask as Protected
from penstock.schedule.backup_location.backup_problem import UNKNOWN_BANDWIDTH
from penstock.schedule.cluster_file import Description
from penstock.schedule.placement_constraints import allowed_nodes
from penstock.schedule.placement_model import Matrix


class MethodError(PenstockError):
    """A method of backup location cannot be used, or has found nothing."""


Method = Callable[[LocationProblem, float], LocationDecision]
"""Solves a problem within so many seconds, if it takes long at all."""


def described_problem(described: Description, matrix: Matrix, failures: int) -> LocationProblem:
    """Return where backups may go when tasks run where the matrix says.

    Tasks that run nowhere, and those that keep nothing on their node, have no backup. All are sorted by name:
    equal choices go by the order, and the order of a file should not matter.
    """
    in_use = dict.fromkeys(described.storage, 0.0)
    for task, node in matrix.places.items():
        in_use[node] += described.snapshot.task_named[task].cpu
    servers = tuple(
        Server(
            node.name,
            node.cores,
            node.bandwidth or UNKNOWN_BANDWIDTH,
            in_use[node.name],
            described.storage[node.name],
            node.rack,
        )
        for node in sorted(described.snapshot.nodes, key=lambda node: node.name)
    )
    tasks = tuple(
        Protected(
            task.id,
            matrix.places[task.id],
            task.cpu,
            backup.snapshot,
            backup.input_rate,
            backup.interval,
            backup.latency,
            allowed_nodes(task, described.snapshot.nodes),
        )
        for task in sorted(described.snapshot.tasks, key=lambda task: task.id)
        if task.id in matrix.places and (backup := described.backups.get(task.id))
    )
    uplinks = tuple(Uplink(link.rack, link.bandwidth) for link in described.snapshot.links)
    return LocationProblem(servers, tasks, uplinks, failures)


def _cbc(problem: LocationProblem, seconds: float) -> LocationDecision:
    from penstock.schedule.backup_location.search.exact_location import solve_cbc

    return _solved("cbc", solve_cbc(problem, limit=seconds).decision, seconds)


def _highs(problem: LocationProblem, seconds: float) -> LocationDecision:
    from penstock.schedule.backup_location.search.exact_location import solve_highs

    return _solved("highs", solve_highs(problem, limit=seconds).decision, seconds)


def _solved(method: str, decision: LocationDecision | None, seconds: float) -> LocationDecision:
    if decision is None:
        raise MethodError(f"{method} has found nothing within {seconds:g} s: allow more, or use improved")
    return decision


METHODS: Mapping[str, Method] = {
    "improved": lambda problem, _: solve(problem),
    "algorithm1": lambda problem, _: algorithm1(problem),
    "cbc": _cbc,
    "highs": _highs,
}
"""The first is the default."""


def protect(problem: LocationProblem, method: str, seconds: float) -> LocationDecision:
    """Decide with a method; raises MethodError."""
    if not problem.tasks:
        return solve(problem)
    try:
        return METHODS[method](problem, seconds)
    except ImportError as error:
        raise MethodError(
            f"method {method} needs the package {error.name}: install penstock[solvers], or use improved"
        ) from None
