"""The simulator: virtual time, the same each time, and nothing gets lost in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from benchmarks.placement_baselines import BASELINES

from penstock.schedule.backup_location import LocationChoice
from penstock.schedule.placement_decision import Placement
from penstock.schedule.placement_model import ClusterSnapshot, Link, Node
from penstock.schedule.placement_strategies import Balanced, Packed, Strategy
from penstock.schedule.simulation.builtin_scenarios import SCENARIOS, speedstream
from penstock.schedule.simulation.scenario import (
    GIB,
    Backup,
    Edge,
    Failures,
    Load,
    Scenario,
    Topology,
    Vertex,
)
from penstock.schedule.simulation.simulated_recovery import Locations, LostTask
from penstock.schedule.simulation.simulator import Run, simulate
from penstock.schedule.simulation.workload import (
    Event,
    JobEnded,
    JobSubmitted,
    LoadsChanged,
    NodeFailed,
    NodeReturned,
    draw_events,
)

PAIR = Topology("pair", (Vertex("one", 1, GIB), Vertex("two", 1, GIB)), (Edge("one", "two", 8e6),))


def _scenario(*racks: str, **more: object) -> Scenario:
    nodes = tuple(Node(f"n{number}", 4, 8 * GIB, 1e6, rack) for number, rack in enumerate(racks, start=1))
    return replace(Scenario("test", nodes, (PAIR,), duration=60, submit_every=10), **more)  # type: ignore[arg-type]


def _run(scenario: Scenario, *events: Event, strategy: str = "balanced") -> Run:
    made: dict[str, Callable[[], Strategy]] = {"balanced": Balanced, "packed": Packed, **BASELINES}
    return simulate(scenario, events, made[strategy](), name=strategy)


def test_a_run_is_the_same_each_time() -> None:
    scenario = replace(speedstream(), duration=100, load=Load(every=10), failures=Failures(between=30))
    first, second = (
        simulate(scenario, draw_events(scenario, Random(7)), BASELINES["storm-even"](), name="storm-even")
        for _ in range(2)
    )
    assert first == second
    other = draw_events(scenario, Random(8))
    assert draw_events(scenario, Random(7)) != other


def test_samples_come_when_they_should_after_what_happens_then() -> None:
    run = _run(_scenario("a"), Event(5, JobSubmitted("j", PAIR)), Event(15, JobEnded("j")))
    assert [sample.at for sample in run.samples] == [5.0 * number for number in range(1, 13)]
    assert [sample.tasks for sample in run.samples[:4]] == [2, 2, 0, 0]


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_no_task_is_lost_and_none_is_made(name: str) -> None:
    scenario = replace(speedstream(), job_seconds=60.0, failures=Failures(between=40.0, repair=50.0))
    seen: list[int] = []

    def watch(snapshot: ClusterSnapshot, placement: Placement) -> None:
        assert set(placement.matrix.places) | set(placement.unplaced) == {task.id for task in snapshot.tasks}
        assert not set(placement.matrix.places) & set(placement.unplaced)
        seen.append(len(snapshot.tasks))

    events = draw_events(scenario, Random(3))
    run = simulate(scenario, events, BASELINES[name](), name=name, watch=watch)
    assert any(isinstance(event.what, NodeFailed) for event in events)
    assert seen
    running: dict[str, int] = {}
    for event in events:
        if isinstance(event.what, JobSubmitted):
            running[event.what.job] = len(event.what.topology.tasks_of("j"))
        elif isinstance(event.what, JobEnded):
            del running[event.what.job]
    assert run.samples[-1].tasks == sum(running.values())


def test_tasks_of_a_lost_node_are_placed_elsewhere() -> None:
    events = (Event(0, JobSubmitted("j", PAIR)), Event(20, NodeFailed("n1")))
    run = _run(_scenario("a", "a"), *events, strategy="packed")
    assert [sample.nodes for sample in run.samples[2:5]] == [2, 1, 1]
    assert all(sample.unplaced == 0 for sample in run.samples)
    assert run.moves == 0


def test_what_fits_nowhere_waits_for_the_node() -> None:
    backup = Backup(restart=3.0)
    events = (Event(0, JobSubmitted("j", PAIR)), Event(10, NodeFailed("n1")), Event(30, NodeReturned("n1")))
    run = _run(_scenario("a", backup=backup), *events)
    assert [sample.unplaced for sample in run.samples] == [0, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0]
    assert [(recovery.seconds, recovery.whole) for recovery in run.recoveries] == [(23.0, False)] * 2


def test_recovery_where_the_backup_is_moves_no_data() -> None:
    backup = Backup(restart=2.0, snapshot=10e6, input_rate=0.0)
    quiet = Topology("quiet", (Vertex("one", 1, GIB),))
    events = (Event(0, JobSubmitted("j", quiet)), Event(20, NodeFailed("n1")))
    scenario = _scenario("a", "a", topologies=(quiet,), backup=backup)
    run = _run(scenario, *events, strategy="packed")
    assert [(recovery.task, recovery.seconds, recovery.whole) for recovery in run.recoveries] == [
        ("j/one-1", 2.0, True)
    ]


@pytest.mark.parametrize(
    ("node", "seconds", "whole"),
    [("store", 7.0, True), ("redeploy", 9.5, True), ("near", 8.0, True), ("far", 12.0, True)],
)
def test_recovery_takes_the_time_of_the_transfer(node: str, seconds: float, whole: bool) -> None:
    nodes = tuple(Node(name, 4, GIB, 2e6, "r") for name in ("store", "redeploy", "near"))
    snapshot = ClusterSnapshot((*nodes, Node("far", 4, GIB, 2e6, "s")), (), links=(Link("s", 0.4e6),))
    choice = LocationChoice("t", "store", "redeploy", rate=8e5, seconds=2.5)
    found = Locations(Backup(restart=2.0)).recovered(LostTask("t", 10.0, choice, 2e6), node, 15.0, snapshot)
    assert (found.seconds, found.whole) == (seconds, whole)


def test_a_task_whose_backup_is_gone_too_begins_anew() -> None:
    snapshot = ClusterSnapshot((Node("n", 4, GIB),), ())
    choice = LocationChoice("t", "gone", "n", rate=1.0, seconds=9.0)
    found = Locations(Backup(restart=2.0)).recovered(LostTask("t", 0.0, choice, 2e6), "n", 0.0, snapshot)
    assert (found.seconds, found.whole) == (2.0, False)


def test_load_changes_what_is_used_and_sent() -> None:
    scenario = _scenario("a", "b")
    events = (Event(0, JobSubmitted("j", PAIR)), Event(20, LoadsChanged((("j", 0.5),))))
    run = _run(scenario, *events, strategy="storm-even")
    assert [sample.cross_switch for sample in run.samples[2:5]] == [8e6, 4e6, 4e6]
    assert run.samples[2].cross_node == 8e6


def test_only_rebalancing_moves_what_runs() -> None:
    first = (Event(0, JobSubmitted("a", PAIR)), Event(1, JobSubmitted("b", PAIR)), Event(2, NodeFailed("n2")))
    events = (*first, Event(10, NodeReturned("n2")))
    assert _run(_scenario("a", "a"), *events).moves == 0
    rebalanced = _run(_scenario("a", "a", rebalance_every=30.0), *events)
    assert rebalanced.moves > 0
    assert rebalanced.samples[-1].imbalance < rebalanced.samples[2].imbalance


def test_jobs_come_until_the_cluster_is_filled() -> None:
    scenario = _scenario("a", fill=0.6)
    jobs = [event.what for event in draw_events(scenario, Random(1))]
    assert jobs == [JobSubmitted("job-0000", PAIR)]
    assert len(draw_events(replace(scenario, fill=1.0), Random(1))) == 2


def test_not_more_than_half_of_the_nodes_are_away() -> None:
    scenario = _scenario("a", "a", "a", "a", duration=500, failures=Failures(between=5.0, repair=100.0))
    away = 0
    for event in draw_events(scenario, Random(5)):
        away += isinstance(event.what, NodeFailed) - isinstance(event.what, NodeReturned)
        assert 0 <= away <= 2
    assert away


def test_loads_stay_within_their_limits() -> None:
    scenario = _scenario("a", "a", duration=1000, load=Load(every=5.0, step=0.5, least=0.4))
    changes = [
        event.what for event in draw_events(scenario, Random(2)) if isinstance(event.what, LoadsChanged)
    ]
    loads = [load for change in changes for _, load in change.loads]
    assert min(loads) == pytest.approx(0.4)
    assert max(loads) == 1.0


def test_the_scenarios_that_come_with_it_are_what_they_say() -> None:
    known = {name: make() for name, make in SCENARIOS.items()}
    assert all(name == scenario.name for name, scenario in known.items())
    speed = known["speedstream"]
    assert (len(speed.nodes), speed.submit_every, speed.sample_every) == (5, 20, 5)
    assert [len(topology.vertices) for topology in speed.topologies] == [4, 6, 8]
    assert len(known["failures"].nodes) >= 100
