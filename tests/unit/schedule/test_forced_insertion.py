"""Forced insertion displaces other tasks, and is undone unless the total cost is lower."""

from __future__ import annotations

import random

import pytest

from penstock.schedule.backup_location import (
    LocationProblem,
    ProtectedTask,
    Server,
    Uplink,
    resolve,
    solve,
    verify,
)
from penstock.schedule.backup_location.backup_problem import build_decision
from penstock.schedule.backup_location.search.forced_insertion import ForcedInsertion
from penstock.schedule.backup_location.search.location_repair import LocationRepair
from penstock.schedule.backup_location.search.location_state import LocationState
from penstock.schedule.backup_location.search.lower_bounds import Bounds


def _crossing(kept: set[int]) -> LocationState:
    """Return two racks; the large task's transfer is fast only if nothing else is stored across."""
    servers = (
        Server("home", cpu=0, bandwidth=100, storage=0, rack="x"),
        Server("storing", cpu=0, bandwidth=100, storage=100, rack="x"),
        Server("running", cpu=9, bandwidth=100, storage=0, rack="y"),
        Server("near", cpu=9, bandwidth=10, storage=10, rack="x"),
        Server("far", cpu=9, bandwidth=10, storage=10, rack="y"),
        Server("other home", cpu=0, bandwidth=100, storage=0, rack="x"),
    )
    tasks = (
        ProtectedTask("large", "home", cpu=1, snapshot=100, input_rate=0),
        ProtectedTask("small", "other home", cpu=1, snapshot=10, input_rate=0),
    )
    placement = LocationState(LocationProblem(servers, tasks, (Uplink("x", 100),), rates=(100, 50)))
    placement.put(1, (4, 4))
    assert placement.put_apart(0, (1, 2))
    assert placement.total() == 2.0
    bounds = Bounds(placement.problem, placement.network)
    ForcedInsertion(LocationRepair(placement, kept, 0, bounds), bounds, 1000).run()
    return placement


def test_what_is_stored_across_an_uplink_makes_room() -> None:
    placement = _crossing(kept=set())
    assert placement.places == [(1, 2), (3, 3)]
    assert placement.total() == 1.0


def test_what_was_kept_does_not_make_room() -> None:
    placement = _crossing(kept={1})
    assert placement.places == [(1, 2), (4, 4)]
    assert placement.total() == 2.0


@pytest.mark.parametrize("seed", range(6))
def test_forcing_never_makes_it_dearer_and_keeps_every_constraint(seed: int) -> None:
    problem = _halves(seed)
    placement = LocationState(problem)
    bounds = Bounds(problem, placement.network)
    repair = LocationRepair(placement, set(), 5000, bounds)
    repair.place_all(list(range(len(problem.tasks))))
    before = placement.total()
    ForcedInsertion(repair, bounds, 5000).run()
    assert placement.total() <= before * (1 + 1e-9)
    choices = [choice for task in range(len(problem.tasks)) if (choice := placement.choice(task))]
    assert verify(problem, build_decision(problem, "test", choices, {})) == ()


def test_forcing_gains_where_no_single_step_does() -> None:
    gained = 0
    for seed in range(6):
        problem = _halves(seed)
        placement = LocationState(problem)
        bounds = Bounds(problem, placement.network)
        repair = LocationRepair(placement, set(), 20_000, bounds)
        repair.place_all(list(range(len(problem.tasks))))
        repair.run()
        before = placement.total()
        ForcedInsertion(repair, bounds, 20_000).run()
        gained += placement.total() < before * (1 - 1e-6)
    assert gained


def test_an_unchanged_cluster_keeps_its_decision() -> None:
    problem = _halves(1)
    first = solve(problem)
    assert not first.unprotected
    assert resolve(problem, first).choices == first.choices


def test_a_placement_is_restored_as_it_was() -> None:
    problem = _halves(2)
    placement = LocationState(problem)
    repair = LocationRepair(placement, set(), 5000, None)
    repair.place_all(list(range(len(problem.tasks))))
    saved, total = placement.saved(), placement.total()
    for task in (0, 3, 5):
        placement.remove(task)
    assert placement.saved() != saved
    placement.restore(saved)
    assert placement.saved() == saved
    assert placement.total() == total


def _halves(seed: int) -> LocationProblem:
    """Return a cluster whose servers have CPU or storage, and rarely both."""
    draw = random.Random(seed)

    def server(number: int) -> Server:
        free, storage = (draw.uniform(2, 5), draw.uniform(0, 50)) if number % 2 else (0.8, 200.0)
        return Server(
            f"s{number:02d}",
            cpu=free,
            bandwidth=draw.choice((12.5, 25, 125)),
            storage=storage,
            rack=f"r{number // 8}",
        )

    tasks = tuple(
        ProtectedTask(
            f"t{number:02d}",
            f"s{draw.randrange(24):02d}",
            draw.uniform(0.5, 2),
            draw.uniform(10, 60),
            0.2,
            60,
        )
        for number in range(28)
    )
    racks = tuple(Uplink(f"r{number}", 125) for number in range(3))
    return LocationProblem(tuple(server(number) for number in range(24)), tasks, racks)
