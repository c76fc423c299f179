"""The paper's equations on examples that are worked out by hand, for every method that decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.schedule.backup_location import (
    LocationChoice,
    LocationDecision,
    LocationProblem,
    ProblemError,
    ProtectedTask,
    Server,
    Uplink,
    algorithm1,
    solve,
    verify,
)
from penstock.schedule.backup_location.backup_problem import build_decision
from penstock.schedule.backup_location.search.exact_location import solve_highs

Method = Callable[[LocationProblem], LocationDecision]


def highs(problem: LocationProblem) -> LocationDecision:
    solution = solve_highs(problem, limit=10)
    assert solution.decision is not None, solution.status
    assert solution.decision.optimal, solution.status
    return solution.decision


METHODS = pytest.mark.parametrize("method", [algorithm1, solve, highs])


def task(name: str, server: str, cpu: float = 1.0) -> ProtectedTask:
    # b = 100 + 2 * 10 = 120 bytes; d = 2 + 100 / 10 = 12 bytes/s.
    return ProtectedTask(name, server, cpu=cpu, snapshot=100, input_rate=2, interval=10)


def store_here_run_there(tasks: tuple[ProtectedTask, ...], rates: tuple[float, ...]) -> LocationProblem:
    """Return a problem where b has storage and no CPU, and c has CPU and no storage."""
    servers = (
        Server("a", cpu=4, cpu_in_use=4, bandwidth=100, storage=0),
        Server("b", cpu=4, cpu_in_use=4, bandwidth=100),
        Server("c", cpu=4, cpu_in_use=0, bandwidth=100, storage=0),
    )
    return LocationProblem(servers, tasks, rates=rates)


@METHODS
def test_one_server_for_both_costs_nothing(method: Method) -> None:
    servers = (Server("a", cpu=4, bandwidth=100), Server("b", cpu=4, bandwidth=100))
    decision = method(LocationProblem(servers, (task("t", "a"),)))
    assert [(choice.store, choice.redeploy, choice.rate) for choice in decision.choices] == [("b", "b", 0.0)]
    assert decision.objective.total == 0.0


@METHODS
def test_a_transfer_takes_the_size_over_the_rate(method: Method) -> None:
    # Equation (3): b / Z = 120 / 40. The link of b carries 12 for storing while a works, 40 when a failed.
    problem = store_here_run_there((task("t", "a"),), rates=(40, 10))
    decision = method(problem)
    (choice,) = decision.choices
    assert (choice.store, choice.redeploy, choice.rate) == ("b", "c", 40.0)
    assert decision.objective.transfer_seconds == pytest.approx(3.0)
    assert verify(problem, decision) == ()


@METHODS
def test_transfers_of_one_failure_share_an_edge(method: Method) -> None:
    # Equation (4) for the link of b when a failed: Z1 + Z2 <= 100. 60 + 60 is too much, 60 + 30 fits:
    # 120 / 60 + 120 / 30 = 2 + 4 seconds; 30 + 30 would take 4 + 4.
    problem = store_here_run_there((task("t1", "a"), task("t2", "a")), rates=(60, 30))
    decision = method(problem)
    assert sorted(choice.rate for choice in decision.choices) == [30.0, 60.0]
    assert decision.objective.transfer_seconds == pytest.approx(6.0)


@pytest.mark.parametrize("method", [solve, highs])
def test_storing_of_those_that_work_takes_from_transfers(method: Method) -> None:
    # When a failed, the link of b still carries the 12 of u, which works on d. 60 + 30 + 12 is too much;
    # 30 + 30 + 12 fits: 120 / 30 + 120 / 30 = 8 seconds. u goes to b whole, which has CPU for it and no more.
    a, b, c = store_here_run_there((), ()).servers
    servers = (a, replace(b, cpu=4.5), c, Server("d", cpu=4, cpu_in_use=4, bandwidth=12, storage=0))
    tasks = (task("t1", "a"), task("t2", "a"), task("u", "d", cpu=0.5))
    decision = method(LocationProblem(servers, tasks, rates=(60, 30)))
    assert decision.objective.transfer_seconds == pytest.approx(8.0)
    assert not decision.unprotected


@METHODS
def test_tasks_of_different_servers_share_cpu_when_one_fails_at_a_time(method: Method) -> None:
    # CheckCPU: c has 2 cores free; a brings 2 and b brings 2, never both.
    servers = (
        Server("a", cpu=4, cpu_in_use=4, bandwidth=100),
        Server("b", cpu=4, cpu_in_use=4, bandwidth=100),
        Server("c", cpu=4, cpu_in_use=2, bandwidth=100),
    )
    problem = LocationProblem(servers, (task("t1", "a", cpu=2), task("t2", "b", cpu=2)))
    assert [choice.redeploy for choice in method(problem).choices] == ["c", "c"]
    # Two at once bring 4: one of them has no place, and its reason is told.
    both = method(replace(problem, failures=2))
    assert len(both.choices) == 1
    assert len(both.unprotected) == 1
    assert both.unprotected[0].reason


@METHODS
def test_a_server_that_is_too_far_is_not_used(method: Method) -> None:
    # The uplink of the rack bears 5, storing takes 12: only b, in the same rack, is left, and it is full.
    servers = (
        Server("a", cpu=4, bandwidth=100, rack="x"),
        Server("b", cpu=4, cpu_in_use=4, bandwidth=100, rack="x"),
        Server("c", cpu=4, bandwidth=100, rack="y"),
    )
    problem = LocationProblem(servers, (task("t", "a"),), (Uplink("x", 5.0),), rates=(5.0, 2.5))
    # Stored on b, transferred to c through the uplink at 5: 120 / 5 = 24 seconds.
    decision = method(problem)
    assert [(choice.store, choice.redeploy) for choice in decision.choices] == [("b", "c")]
    assert decision.objective.transfer_seconds == pytest.approx(24.0)


def test_algorithm_1_takes_tasks_with_low_latency_and_servers_with_few_edges_first() -> None:
    servers = (
        Server("a", cpu=4, bandwidth=100, rack="x"),
        Server("far", cpu=4, bandwidth=100, rack="y"),
        Server("near", cpu=1, bandwidth=100, rack="x"),
    )
    slow, fast = replace(task("slow", "a"), latency=9.0), replace(task("zfast", "a"), latency=0.1)
    decision = algorithm1(LocationProblem(servers, (slow, fast)))
    assert {choice.task: choice.store for choice in decision.choices} == {"zfast": "near", "slow": "far"}


@pytest.mark.parametrize(
    ("choice", "constraints"),
    [
        (LocationChoice("t1", "a", "b", 40.0, 3.0), "server"),
        (LocationChoice("t1", "b", "nowhere", 40.0, 3.0), "server"),
        (LocationChoice("t1", "b", "c", 41.0, 120 / 41), "rate"),
        (LocationChoice("t1", "b", "c", 40.0, 1.0), "rate"),
        (LocationChoice("t1", "b", "b", 40.0, 3.0), "cpu rate"),
        (LocationChoice("t1", "b", "b"), "cpu"),
        (LocationChoice("t1", "c", "c"), "storage"),
        (LocationChoice("t1", "b", "c", 100.0, 1.2), ""),
        (LocationChoice("t1", "b", "c", 200.0, 0.6), "bandwidth"),
        (LocationChoice("t2", "b", "c", 100.0, 1.2), "once"),
    ],
)
def test_verify_finds_what_is_wrong(choice: LocationChoice, constraints: str) -> None:
    problem = store_here_run_there((task("t1", "a"),), rates=(200, 100, 40))
    found = verify(problem, build_decision(problem, "by hand", [choice], {}))
    assert {violation.constraint for violation in found} == set(constraints.split())
    assert all(violation.reason for violation in found)


def test_a_task_that_is_answered_twice_is_found() -> None:
    problem = store_here_run_there((task("t1", "a"),), rates=(40,))
    good = LocationChoice("t1", "b", "c", 40.0, 3.0)
    found = verify(problem, build_decision(problem, "by hand", [good, good], {}))
    assert "once" in {violation.constraint for violation in found}


@pytest.mark.parametrize(
    "make",
    [
        lambda a: LocationProblem((a, a), ()),
        lambda a: LocationProblem((a,), (task("t", "b"),)),
        lambda a: LocationProblem((replace(a, bandwidth=0),), ()),
        lambda a: LocationProblem((a,), (), failures=0),
        lambda a: LocationProblem((a,), (replace(task("t", "a"), interval=0),)),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(make: Callable[[Server], LocationProblem]) -> None:
    with pytest.raises(ProblemError):
        make(Server("a", cpu=1, bandwidth=1))
