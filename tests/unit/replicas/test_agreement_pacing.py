"""A replica that is behind gets time to catch up; a dead one costs next to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest

from penstock.replicas.agreement.agreement_protocol import (
    KEPT_BATCHES,
    KEPT_SECONDS,
    ReplicaProgress,
    first_batch_to_keep,
    pause,
)

NOW = 1_000.0


def stands(
    batch: int, ago: float = 0.0, name: str = "count~1", seconds: float = 0.0
) -> dict[str, ReplicaProgress]:
    return {name: ReplicaProgress(name, batch, NOW - ago, seconds)}


@pytest.mark.parametrize(
    ("replica_progress", "since", "expected"),
    [
        pytest.param({}, 0.0, 0.0, id="alone"),
        pytest.param(stands(9), 2.0, 0.0, id="as-far"),
        pytest.param(stands(8), 2.0, 0.0, id="one-behind"),
        pytest.param(stands(7), 2.0, 0.5, id="two-behind"),
        pytest.param(stands(7), 2.25, 0.25, id="some-of-it-is-over"),
        pytest.param(stands(7), 3.5, 0.0, id="all-of-it-is-over"),
        pytest.param(stands(-1), 2.0, 0.5, id="nothing-done"),
        pytest.param(stands(7, ago=5.0), 2.0, 0.5, id="just-heard-of"),
        pytest.param(stands(7, ago=5.1), 2.0, 0.0, id="dead"),
        pytest.param(stands(7, ago=9.0, seconds=4.0), 2.0, 2.0, id="slow"),
        pytest.param(stands(7, ago=9.1, seconds=4.0), 2.0, 0.0, id="slow-and-dead"),
        pytest.param(stands(7, seconds=2.4), 2.0, 1.0, id="a-little-slower"),
        pytest.param(stands(7, seconds=1.0), 2.0, 0.5, id="faster"),
        pytest.param(stands(7, name="count"), 2.0, 0.0, id="itself"),
        pytest.param({**stands(9), **stands(3, name="count~2")}, 2.0, 0.5, id="one-of-two"),
    ],
)
def test_who_waits_for_whom(
    replica_progress: dict[str, ReplicaProgress], since: float, expected: float
) -> None:
    assert pause(10, "count", replica_progress, NOW, since, usual=2.0) == pytest.approx(expected)


@dataclass
class Runner:
    """A replica that runs batches one after the other, in a time of its own."""

    name: str
    seconds: float
    done: int = -1
    free_at: float = 0.0
    dies_at: float = float("inf")
    said_at: float = 0.0

    def standing(self) -> ReplicaProgress:
        return ReplicaProgress(self.name, self.done, self.said_at, self.seconds)


def simulate(runners: list[Runner], planned: int, until: float) -> list[float]:
    """Let replicas plan and run, and return when each batch was planned."""
    plans = [0.0] * (planned + 1)
    now = 0.0
    while now < until:
        replica_progress = {runner.name: runner.standing() for runner in runners}
        for runner in runners:
            if not runner.free_at <= now < runner.dies_at:
                continue
            batch = runner.done + 1
            if batch == len(plans):
                usual = min(each.seconds for each in runners)
                if pause(batch, runner.name, replica_progress, now, now - plans[-1], usual) > 0:
                    continue
                plans.append(now)
            runner.done, runner.free_at, runner.said_at = batch, now + runner.seconds, now + runner.seconds
        now += 0.01
    return plans


@pytest.mark.parametrize(
    ("seconds", "behind", "pace"),
    [
        pytest.param(1.0, 30, 1.6, id="30-behind"),
        pytest.param(1.2, 0, 1.6, id="slower"),
        pytest.param(1.6, 20, 2.1, id="20-behind-on-a-slow-node"),
    ],
)
def test_one_that_is_behind_catches_up(seconds: float, behind: int, pace: float) -> None:
    head = Runner("count", 1.0, done=99)
    other = Runner("count~1", seconds, done=99 - behind)
    simulate([head, other], planned=99, until=200.0)
    assert head.done - other.done <= 2
    assert head.done > 99 + 200 / pace


def test_a_dead_one_costs_a_pause_at_most() -> None:
    runners = [Runner("count", 1.0, done=99), Runner("count~1", 1.0, done=99, dies_at=5.0)]
    plans = simulate(runners, planned=99, until=60.0)[100:]
    apart = [after - before for before, after in pairwise(plans)]
    assert max(apart) <= 1.25 + 0.02
    assert sum(gap > 1.02 for gap in apart) <= 1
    assert runners[0].done >= 99 + 58


def test_a_dead_one_that_was_behind_is_waited_for_no_longer_than_it_is_thought_alive() -> None:
    runners = [Runner("count", 0.1, done=99), Runner("count~1", 0.1, done=50, dies_at=2.0)]
    plans = simulate(runners, planned=99, until=10.0)[100:]
    late = [before for before, after in pairwise(plans) if after - before > 0.12]
    assert late
    assert max(late) <= 2.0 + 0.1 + 1.2 + 0.1


def test_what_is_young_or_among_the_last_is_kept() -> None:
    times = {batch: float(batch) for batch in range(100, 2_100)}
    assert first_batch_to_keep(times, now=2_100.0) == 2_100 - int(KEPT_SECONDS)
    assert first_batch_to_keep(times, now=99_999.0) == 2_100 - KEPT_BATCHES
    assert first_batch_to_keep(dict.fromkeys(range(100, 600), 0.0), now=99_999.0) == 100
    assert first_batch_to_keep({}, now=0.0) == 0
