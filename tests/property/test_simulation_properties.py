"""Whatever happens in a simulated cluster, no decision ever breaks a hard rule."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from benchmarks.placement_baselines import BASELINES
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.schedule.placement_decision import Placement, verify
from penstock.schedule.placement_model import ClusterSnapshot, Node
from penstock.schedule.placement_strategies import Balanced, LoadAware, Packed, Strategy
from penstock.schedule.simulation.builtin_scenarios import TOPOLOGIES
from penstock.schedule.simulation.scenario import GIB, Backup, Failures, Load, Scenario
from penstock.schedule.simulation.simulator import simulate
from penstock.schedule.simulation.workload import JobSubmitted, draw_events

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "balanced": lambda: Balanced(tries=500),
    "packed": Packed,
    "load-aware": LoadAware,
    **BASELINES,
}

nodes = st.lists(
    st.tuples(st.sampled_from([2, 4, 8, 16]), st.sampled_from([4, 16, 32]), st.sampled_from("abc")),
    min_size=1,
    max_size=5,
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    drawn = draw(nodes)
    return Scenario(
        "drawn",
        tuple(
            Node(f"n{number}", cores, memory * GIB, 1e8, rack)
            for number, (cores, memory, rack) in enumerate(drawn)
        ),
        TOPOLOGIES,
        duration=draw(st.sampled_from([60.0, 150.0])),
        submit_every=15,
        sample_every=10,
        fill=draw(st.sampled_from([0.5, 1.0])),
        job_seconds=draw(st.sampled_from([0.0, 60.0])),
        rebalance_every=draw(st.sampled_from([0.0, 40.0])),
        overloaded_above=draw(st.sampled_from([0.7, 1.0])),
        load=draw(st.sampled_from([None, Load(every=10.0)])),
        failures=draw(st.sampled_from([None, Failures(between=20.0, repair=30.0)])),
        backup=draw(st.sampled_from([None, Backup(), Backup(failures=2)])),
    )


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@settings(max_examples=settings().max_examples // 6, deadline=None)
@given(scenario=scenarios(), seed=st.integers(0, 1 << 16))
def test_no_rule_is_ever_broken_and_no_task_gets_lost(name: str, scenario: Scenario, seed: int) -> None:
    events = draw_events(scenario, Random(seed))

    def watch(snapshot: ClusterSnapshot, placement: Placement) -> None:
        assert verify(placement, snapshot) == []
        assert {*placement.matrix.places, *placement.unplaced} == {task.id for task in snapshot.tasks}

    run = simulate(scenario, events, STRATEGIES[name](), name=name, watch=watch)
    submitted = sum(isinstance(event.what, JobSubmitted) for event in events)
    for sample in run.samples:
        assert sample.imbalance >= 0
        assert 0 <= sample.cross_switch <= sample.cross_node + 1e-3
        assert 0 <= sample.unplaced <= sample.tasks
        assert sample.jobs <= submitted
    assert all(recovery.seconds >= 0 for recovery in run.recoveries)
