"""What holds for every decision about backups, on random clusters."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.schedule.backup_location import (
    LocationDecision,
    LocationProblem,
    ProtectedTask,
    Server,
    Uplink,
    algorithm1,
    changes,
    resolve,
    solve,
)
from penstock.schedule.backup_location.backup_problem import Network
from penstock.schedule.backup_location.location_check import TOLERANCE, verify
from penstock.schedule.backup_location.search.exact_location import solve_highs

FEW = settings(max_examples=settings().max_examples, deadline=None, derandomize=True)


@st.composite
def problems(draw: st.DrawFn, most_servers: int = 6, most_tasks: int = 10) -> LocationProblem:
    count = draw(st.integers(1, most_servers))
    figure = st.integers(0, 8)
    servers = tuple(
        Server(
            f"s{number}",
            cpu=8,
            cpu_in_use=draw(figure),
            bandwidth=draw(st.sampled_from((10, 20, 100))),
            storage=draw(st.sampled_from((0, 50, 200, 1000))),
            rack=draw(st.sampled_from("xy")),
        )
        for number in range(count)
    )
    tasks = tuple(
        ProtectedTask(
            f"t{number}",
            f"s{draw(st.integers(0, count - 1))}",
            cpu=draw(figure) / 2,
            snapshot=draw(figure) * 5,
            input_rate=draw(figure) / 4,
        )
        for number in range(draw(st.integers(0, most_tasks)))
    )
    uplinks = (Uplink("x", draw(st.sampled_from((5, 50)))),)
    return LocationProblem(servers, tasks, uplinks, failures=draw(st.integers(1, 2)), rates=(100, 50, 20, 5))


def cluster(servers: int, tasks: int, seed: int, *, halves: bool = False) -> LocationProblem:
    """Return a cluster with some room; with halves, some servers have CPU and the others storage."""
    source = random.Random(seed)

    def server(number: int) -> Server:
        used, storage = source.uniform(2, 7.5), source.choice((100e6, 200e6, 400e6))
        if halves and number % 2:
            used, storage = source.uniform(2, 5), source.uniform(0, 60e6)
        elif halves:
            used, storage = source.uniform(7, 8), source.uniform(100e6, 400e6)
        bandwidth = source.choice((12.5e6, 125e6))
        storage *= max(1.0, tasks / servers)
        return Server(f"s{number:03d}", 8, bandwidth, used, storage, rack=f"r{number % 3}")

    def task(number: int) -> ProtectedTask:
        return ProtectedTask(
            f"t{number:03d}",
            f"s{source.randrange(servers):03d}",
            cpu=source.uniform(0.5, 2),
            snapshot=source.uniform(5e6, 40e6),
            input_rate=source.uniform(0.05e6, 0.5e6),
            interval=30,
        )

    return LocationProblem(
        tuple(server(number) for number in range(servers)), tuple(task(number) for number in range(tasks))
    )


def by_definition(problem: LocationProblem, decision: LocationDecision) -> None:
    """Check CPU and equation (4) for each set of servers that may fail together."""
    network, tasks = Network(problem), {task.name: task for task in problem.tasks}
    names = [server.name for server in problem.servers]
    for failed in combinations(names, min(problem.failures, len(names))):
        cpu = dict.fromkeys(names, 0.0)
        edges = [0.0] * len(network.capacity)
        for choice in decision.choices:
            task = tasks[choice.task]
            store, redeploy = network.index[choice.store], network.index[choice.redeploy]
            if task.server in failed:
                cpu[choice.redeploy] += task.cpu
                way, rate = network.path(store, redeploy), choice.rate
            else:
                way, rate = network.path(network.index[task.server], store), task.store_rate
            for edge in way:
                edges[edge] += rate
        for server in problem.servers:
            assert cpu[server.name] <= server.free_cpu + TOLERANCE
        for used, limit in zip(edges, network.capacity, strict=True):
            assert used <= limit * (1 + TOLERANCE)


@FEW
@given(problems())
def test_both_algorithms_keep_every_constraint(problem: LocationProblem) -> None:
    for decision in (algorithm1(problem), solve(problem, effort=500)):
        assert verify(problem, decision) == ()
        by_definition(problem, decision)


@settings(max_examples=settings().max_examples // 4, deadline=None, derandomize=True)
@given(problems(most_servers=4, most_tasks=5))
def test_the_exact_solution_keeps_every_constraint_and_is_not_worse(problem: LocationProblem) -> None:
    solution = solve_highs(problem, limit=2)
    assert solution.decision is not None, solution.status
    assert verify(problem, solution.decision) == ()
    by_definition(problem, solution.decision)
    if solution.decision.optimal:
        for decision in (algorithm1(problem), solve(problem, effort=500)):
            assert solution.decision.objective.total <= decision.objective.total * (1 + 1e-5) + 1e-6


@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(3, 12))]
)
def test_the_decision_is_near_the_optimum(seed: int) -> None:
    problem = cluster(5, 7, seed, halves=True)
    exact = solve_highs(problem, limit=5).decision
    assert exact is not None
    assert exact.optimal
    ours = solve(problem)
    assert exact.objective.total * (1 - 1e-5) <= ours.objective.total <= exact.objective.total * 1.05 + 1e-6


@FEW
@given(problems())
def test_ours_is_never_behind_algorithm_1(problem: LocationProblem) -> None:
    assert solve(problem, effort=200).objective.total <= algorithm1(problem).objective.total * (1 + 1e-5)


@FEW
@given(problems())
def test_the_same_input_gives_the_same_decision(problem: LocationProblem) -> None:
    assert solve(problem, effort=300) == solve(problem, effort=300)
    assert algorithm1(problem) == algorithm1(problem)


@FEW
@given(problems())
def test_nothing_changes_when_nothing_changed(problem: LocationProblem) -> None:
    first = solve(problem, effort=300)
    again = resolve(problem, first, effort=300)
    assert verify(problem, again) == ()
    if not first.unprotected:
        assert changes(first, again) == ()
        assert [choice.task for choice in again.choices] == [choice.task for choice in first.choices]


@pytest.mark.parametrize("seed", range(3))
def test_a_lost_server_changes_only_what_concerns_it(seed: int) -> None:
    problem = cluster(20, 40, seed)
    first = solve(problem)
    assert not first.unprotected
    lost = first.choices[0].store
    chosen = {choice.task: choice for choice in first.choices}
    moved = tuple(
        replace(task, server=chosen[task.name].redeploy) if task.server == lost else task
        for task in problem.tasks
    )
    after = replace(problem, tasks=moved, servers=tuple(s for s in problem.servers if s.name != lost))
    again = resolve(after, first)
    assert verify(after, again) == ()
    assert not again.unprotected
    concerned = {task.name for task in problem.tasks if task.server == lost}
    concerned |= {choice.task for choice in first.choices if lost in (choice.store, choice.redeploy)}
    changed = {choice.task for choice in changes(first, again)}
    assert changed
    assert changed <= concerned


def test_a_decision_for_a_large_cluster_is_sound() -> None:
    problem = cluster(100, 1000, 1)
    decision = solve(problem)
    assert verify(problem, decision) == ()
    assert len(decision.choices) + len(decision.unprotected) == 1000
