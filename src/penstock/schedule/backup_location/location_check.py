"""Checks a decision against every constraint, from the definitions, without what the algorithms use."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from penstock.schedule.backup_location.backup_problem import (
    LocationChoice,
    LocationDecision,
    LocationProblem,
    Network,
    ProtectedTask,
)

TOLERANCE = 1e-5
"""Relative. Solvers keep constraints to a millionth."""


@dataclass(frozen=True, slots=True)
class LocationViolation:
    """One constraint that a decision breaks."""

    constraint: str
    subject: str
    """The task, server or edge."""
    reason: str


def verify(problem: LocationProblem, decision: LocationDecision) -> tuple[LocationViolation, ...]:
    """Return everything that is wrong with a decision; nothing if it may be used."""
    network = Network(problem)
    tasks = {task.name: task for task in problem.tasks}
    found = [*_answered(problem, decision)]
    sound: list[tuple[ProtectedTask, LocationChoice]] = []
    for choice in decision.choices:
        task = tasks.get(choice.task)
        if task is None:
            continue
        wrong = _choice(problem, network, task, choice)
        found += wrong
        if not any(violation.constraint == "server" for violation in wrong):
            sound.append((task, choice))
    found += _cpu(problem, sound)
    found += _storage(problem, sound)
    found += _bandwidth(problem, network, sound)
    return tuple(found)


def _answered(problem: LocationProblem, decision: LocationDecision) -> list[LocationViolation]:
    times: dict[str, int] = defaultdict(int)
    for name in (
        *(answer.task for answer in decision.choices),
        *(left.task for left in decision.unprotected),
    ):
        times[name] += 1
    found = []
    for task in problem.tasks:
        count = times.pop(task.name, 0)
        if count != 1:
            reason = (
                f"task {task.name!r} is answered {count} times; equation (5) wants one store and one redeploy"
            )
            found.append(LocationViolation("once", task.name, reason))
    return found + [
        LocationViolation("once", name, f"task {name!r} is not in the problem") for name in sorted(times)
    ]


def _choice(
    problem: LocationProblem, network: Network, task: ProtectedTask, choice: LocationChoice
) -> list[LocationViolation]:
    found = []
    for role, server in (("stored on", choice.store), ("redeployed to", choice.redeploy)):
        if server not in network.index:
            found.append(
                LocationViolation("server", task.name, f"it is {role} {server!r}, which is no server here")
            )
        elif server == task.server:
            reason = f"it is {role} {server!r}, where it works: both would be lost together, equation (5)"
            found.append(LocationViolation("server", task.name, reason))
    if task.allowed is not None and choice.redeploy not in task.allowed:
        found.append(LocationViolation("allowed", task.name, f"it may not run on {choice.redeploy!r}"))
    if choice.store == choice.redeploy:
        if choice.rate or choice.seconds:
            found.append(
                LocationViolation("rate", task.name, "nothing is transferred, but it has a rate or a time")
            )
    elif choice.rate not in problem.rates:
        found.append(
            LocationViolation("rate", task.name, f"{choice.rate} is none of the rates {problem.rates}")
        )
    elif abs(choice.seconds - task.backup / choice.rate) > TOLERANCE * max(1.0, choice.seconds):
        reason = f"its transfer takes {task.backup / choice.rate} s by equation (3), not {choice.seconds} s"
        found.append(LocationViolation("rate", task.name, reason))
    return found


def _worst(loads: dict[str, float], failures: int) -> tuple[float, str]:
    ordered = sorted(((load, name) for name, load in loads.items() if load > 0), reverse=True)[:failures]
    return sum(load for load, _ in ordered), ", ".join(sorted(name for _, name in ordered))


def _cpu(
    problem: LocationProblem, sound: list[tuple[ProtectedTask, LocationChoice]]
) -> list[LocationViolation]:
    loads: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for task, choice in sound:
        loads[choice.redeploy][task.server] += task.cpu
    found = []
    for server in problem.servers:
        need, failed = _worst(loads[server.name], problem.failures)
        if need > server.free_cpu + TOLERANCE * max(1.0, server.free_cpu):
            reason = f"when {failed} fail it must run {need:g} cores more and has {server.free_cpu:g} free"
            found.append(LocationViolation("cpu", server.name, reason))
    return found


def _storage(
    problem: LocationProblem, sound: list[tuple[ProtectedTask, LocationChoice]]
) -> list[LocationViolation]:
    stored: dict[str, float] = defaultdict(float)
    for task, choice in sound:
        stored[choice.store] += task.backup
    return [
        LocationViolation(
            "storage", server.name, f"stores {stored[server.name]:g} of {server.storage:g} bytes"
        )
        for server in problem.servers
        if stored[server.name] > server.storage * (1 + TOLERANCE)
    ]


def _bandwidth(
    problem: LocationProblem, network: Network, sound: list[tuple[ProtectedTask, LocationChoice]]
) -> list[LocationViolation]:
    storing: dict[int, float] = defaultdict(float)
    failing: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for task, choice in sound:
        store, redeploy = network.index[choice.store], network.index[choice.redeploy]
        for edge in network.path(network.index[task.server], store):
            storing[edge] += task.store_rate
            failing[edge][task.server] -= task.store_rate
        for edge in network.path(store, redeploy):
            failing[edge][task.server] += choice.rate
    found = []
    for edge, limit in enumerate(network.capacity):
        more, failed = _worst(failing[edge], problem.failures)
        if storing[edge] + more > limit * (1 + TOLERANCE):
            when = f"when {failed} fail" if failed else "while all servers work"
            reason = f"{when} it must carry {storing[edge] + more:g} of {limit:g} bytes/s, equation (4)"
            found.append(LocationViolation("bandwidth", network.edge_name(edge), reason))
    return found
