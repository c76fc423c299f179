"""What no decision can be below: against the optimum, and against what a reader can count."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.schedule.backup_location import LocationProblem, ProtectedTask, Server, Uplink, solve
from penstock.schedule.backup_location.backup_problem import Network
from penstock.schedule.backup_location.search.exact_location import solve_highs
from penstock.schedule.backup_location.search.lower_bounds import Bounds


def _bounds(problem: LocationProblem) -> Bounds:
    return Bounds(problem, Network(problem))


def _total(problem: LocationProblem) -> float:
    return _bounds(problem).total(range(len(problem.tasks)))


def _halves(*sizes: float, large: int = 1, failures: int = 1) -> LocationProblem:
    """Return backups of these sizes; some large servers could store and redeploy them, two only one of it."""
    servers = (
        Server("here", cpu=0, bandwidth=100, storage=0),
        Server("storing", cpu=0, bandwidth=100, storage=1000),
        Server("running", cpu=9, bandwidth=100, storage=0),
        *(Server(f"large-{number}", cpu=9, bandwidth=9, storage=50) for number in range(large)),
    )
    tasks = tuple(
        ProtectedTask(f"t{number}", "here", cpu=1, snapshot=size, input_rate=0)
        for number, size in enumerate(sizes)
    )
    return LocationProblem(servers, tasks, failures=failures, rates=(100, 50, 10))


def test_a_task_that_one_server_can_take_may_cost_nothing() -> None:
    bounds = _bounds(_halves(40))
    assert bounds.alone[0].able == [3]
    assert bounds.least(0) == 0.0
    assert bounds.apart(0) == pytest.approx(0.4)
    assert bounds.total([0]) == 0.0


def test_a_task_that_none_can_take_costs_the_fastest_transfer() -> None:
    bounds = _bounds(_halves(60))
    assert bounds.alone[0].able == []
    assert bounds.least(0) == bounds.total() == pytest.approx(0.6)


def test_of_two_that_do_not_fit_together_the_smaller_costs() -> None:
    problem = _halves(40, 30)
    assert _bounds(problem).total() == 0.0
    assert _total(problem) == pytest.approx(0.3)
    assert _total(_halves(40, 30, large=2)) == 0.0
    assert _total(_halves(20, 30)) == 0.0


def test_small_ones_do_not_hide_that_large_ones_do_not_fit() -> None:
    assert _total(_halves(40, 5, 30, 5)) == pytest.approx(0.3)


def test_what_works_on_a_server_stores_through_its_link() -> None:
    problem = _halves(60)
    there = ProtectedTask("there", "storing", cpu=1, snapshot=10, input_rate=0)
    busy = LocationProblem(problem.servers, (*problem.tasks, there), rates=problem.rates)
    assert _bounds(busy).bare[1] == 99.0
    assert _total(busy) == pytest.approx(60 / 50)


def test_a_task_without_any_place_does_not_count_for_links() -> None:
    problem = _halves(60)
    nowhere = ProtectedTask("nowhere", "storing", cpu=99, snapshot=10, input_rate=0)
    busy = LocationProblem(problem.servers, (*problem.tasks, nowhere), rates=problem.rates)
    assert _bounds(busy).bare[1] == 100.0
    assert _total(busy) == pytest.approx(0.6 + busy.unprotected_seconds(nowhere))


def test_a_search_that_is_at_the_bound_says_that_it_is_the_optimum() -> None:
    decision = solve(_halves(40, 30))
    assert decision.objective.total == pytest.approx(0.3)
    assert decision.optimal


@st.composite
def _problems(draw: st.DrawFn) -> LocationProblem:
    count = draw(st.integers(2, 5))
    servers = tuple(
        Server(
            f"s{number}",
            cpu=8,
            cpu_in_use=draw(st.sampled_from((2, 6, 7, 8))),
            bandwidth=draw(st.sampled_from((3, 10, 40))),
            storage=draw(st.sampled_from((0, 20, 45, 200))),
            rack=draw(st.sampled_from("xy")),
        )
        for number in range(count)
    )
    names = [server.name for server in servers]
    tasks = tuple(
        ProtectedTask(
            f"t{number}",
            draw(st.sampled_from(names)),
            cpu=draw(st.sampled_from((0.5, 1.5, 3))),
            snapshot=draw(st.sampled_from((5, 15, 30, 40))),
            input_rate=draw(st.sampled_from((0.0, 0.5))),
            allowed=draw(st.sampled_from((None, None, tuple(names[:2])))),
        )
        for number in range(draw(st.integers(1, 6)))
    )
    uplinks = draw(st.sampled_from(((), (Uplink("x", 8),), (Uplink("x", 40), Uplink("y", 40)))))
    return LocationProblem(servers, tasks, uplinks, failures=draw(st.integers(1, 2)), rates=(40, 20, 5))


@settings(max_examples=settings().max_examples, deadline=None, derandomize=True)
@given(_problems())
def test_the_bound_is_never_above_the_optimum(problem: LocationProblem) -> None:
    exact = solve_highs(problem, limit=5).decision
    assert exact is not None
    if exact.optimal:
        assert _total(problem) <= exact.objective.total * (1 + 1e-5) + 1e-6
