"""The parts of the search: chains, ruin and recreate, and servers that may not run a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from penstock.schedule.backup_location import (
    LocationProblem,
    ProtectedTask,
    Server,
    algorithm1,
    resolve,
    solve,
    verify,
)
from penstock.schedule.backup_location.backup_problem import LocationDecision, build_decision
from penstock.schedule.backup_location.search.exact_location import solve_highs
from penstock.schedule.backup_location.search.location_repair import DisplacementChains
from penstock.schedule.backup_location.search.location_state import LocationState
from penstock.schedule.backup_location.search.lower_bounds import Bounds
from penstock.schedule.backup_location.search.ruin_and_recreate import RepeatableDraw, RuinAndRecreate


def _row() -> tuple[LocationProblem, LocationState]:
    """Return three servers of growing size, where a task has to push two others on to find a place.

    Each server stores one backup; the large task needs the large server, whose task needs the middle one.
    """
    servers = tuple(
        Server(name, cpu=4, bandwidth=100, storage=storage)
        for name, storage in (("here", 0), ("small", 10), ("middle", 20), ("large", 30))
    )
    tasks = tuple(
        ProtectedTask(name, "here", cpu=1, snapshot=size, input_rate=0)
        for name, size in (("ten", 10), ("twenty", 20), ("thirty", 30))
    )
    problem = LocationProblem(servers, tasks)
    placement = LocationState(problem)
    placement.put(0, (2, 2))
    placement.put(1, (3, 3))
    return problem, placement


def test_a_chain_pushes_tasks_on_until_one_finds_a_free_place() -> None:
    _, placement = _row()
    moves, left_over = next(
        DisplacementChains(placement, Bounds(placement.problem, placement.network)).of(2, frozenset())
    )
    assert moves == [(2, 3), (1, 2), (0, 1)]
    assert left_over is None


def test_a_chain_leaves_kept_tasks_alone() -> None:
    _, placement = _row()
    assert list(
        DisplacementChains(placement, Bounds(placement.problem, placement.network)).of(2, frozenset({0}))
    ) == [([(2, 3)], 1)]
    assert (
        list(
            DisplacementChains(placement, Bounds(placement.problem, placement.network)).of(2, frozenset({1}))
        )
        == []
    )


def test_looking_for_chains_changes_nothing() -> None:
    _, placement = _row()
    before = list(placement.places), [dict(loads) for loads in placement.ledger.cpu]
    chains = DisplacementChains(placement, Bounds(placement.problem, placement.network))
    list(chains.of(2, frozenset()))
    assert (placement.places, placement.ledger.cpu) == before
    assert chains.spent() > 0
    assert chains.spent() == 0


def test_all_find_a_place_by_chains() -> None:
    problem, _ = _row()
    decision = solve(problem)
    assert decision.optimal
    assert {choice.task: choice.store for choice in decision.choices} == {
        "ten": "small",
        "twenty": "middle",
        "thirty": "large",
    }


def test_ruin_leaves_the_cheapest_and_what_was_kept() -> None:
    problem, placement = _row()
    before = placement.total()
    RuinAndRecreate(placement, {1}, 3000, 0.5, 1, spread=True).run()
    assert placement.places[1] == (3, 3)
    assert placement.total() <= before
    free = _row()[1]
    RuinAndRecreate(free, set(), 3000, 0.5, 1, spread=False).run()
    assert free.total() == 0.0
    decision = _decision(problem, free)
    assert verify(problem, decision) == ()


def test_ruin_without_anything_costly_ends_at_once() -> None:
    _, placement = _row()
    ruin = RuinAndRecreate(placement, {0, 1, 2}, 1000, 0.5, 1, spread=False)
    ruin.run()
    assert ruin.effort == 1000


@pytest.mark.parametrize("seed", range(12))
def test_what_is_tried_and_taken_back_leaves_every_constraint_kept(seed: int) -> None:
    """Where bandwidth is scarce, most changes are taken back: rates that they changed must be, too."""
    problem = _narrow(seed)
    for effort in (300, 2000):
        assert verify(problem, solve(problem, effort=effort)) == ()


def _narrow(seed: int) -> LocationProblem:
    draw = Random(seed)
    servers = tuple(
        Server(
            f"s{number}",
            cpu=8,
            cpu_in_use=draw.choice((4.0, 7.5)),
            bandwidth=draw.choice((4e6, 8e6, 40e6)),
            storage=draw.choice((20e6, 200e6)),
        )
        for number in range(5)
    )
    tasks = tuple(
        ProtectedTask(
            f"t{number}", f"s{draw.randrange(5)}", draw.uniform(0.5, 2), draw.uniform(5e6, 40e6), 3e5, 30.0
        )
        for number in range(9)
    )
    return LocationProblem(servers, tasks)


def test_draws_are_spread_and_the_same_each_time() -> None:
    drawn = [RepeatableDraw(5).below(6) for _ in range(3)]
    assert len(set(drawn)) == 1
    draw = RepeatableDraw(7)
    counts = [0] * 6
    for _ in range(6000):
        counts[draw.below(6)] += 1
    assert all(850 < count < 1150 for count in counts)
    assert sorted(RepeatableDraw(3).some([1, 2, 3, 4], 9)) == [1, 2, 3, 4]
    assert len(RepeatableDraw(3).some([1, 2, 3, 4], 2)) == 2


def _allowed(*names: str) -> LocationProblem:
    servers = tuple(Server(name, cpu=4, bandwidth=100, storage=1000) for name in "abc")
    return LocationProblem(
        servers, (ProtectedTask("t", "a", cpu=1, snapshot=100, input_rate=0, allowed=names),)
    )


@pytest.mark.parametrize("method", [solve, algorithm1])
def test_a_task_is_redeployed_only_where_it_may_run(
    method: Callable[[LocationProblem], LocationDecision],
) -> None:
    decision = method(_allowed("c", "gone"))
    assert decision.choices[0].redeploy == "c"
    assert method(_allowed()).unprotected[0].task == "t"
    assert method(_allowed("a")).unprotected[0].task == "t"


def test_the_exact_model_and_the_check_know_where_a_task_may_run() -> None:
    problem = _allowed("c")
    exact = solve_highs(problem, limit=5).decision
    assert exact is not None
    assert exact.choices[0].redeploy == "c"
    wrong = replace(exact, choices=(replace(exact.choices[0], store="b", redeploy="b"),))
    assert [violation.constraint for violation in verify(problem, wrong)] == ["allowed"]


def test_a_choice_is_given_up_when_its_server_may_run_the_task_no_more() -> None:
    first = solve(_allowed("b"))
    again = resolve(_allowed("c"), first)
    assert again.choices[0].redeploy == "c"


def _decision(problem: LocationProblem, placement: LocationState) -> LocationDecision:
    choices = [choice for task in range(len(problem.tasks)) if (choice := placement.choice(task))]
    return build_decision(problem, "test", choices, {})
