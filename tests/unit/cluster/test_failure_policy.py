"""The policy about workers that fail: each row of the table in docs/explanation/high-availability.md."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.failure_policy import (
    FailurePolicy,
    consecutive_failures,
    describe_failures,
    has_committed,
    has_run_well,
)
from penstock.cluster.worker_documents import Failures, Progress, WorkerFailure, WorkerInfo

NOW = 10_000.0
POLICY = FailurePolicy()
PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "high-availability.md"


def _fail(known: Failures | None, at: float, *, well: bool = False, node: str = "n1") -> Failures:
    revision = 1 if node == "n1" else 2
    return POLICY.after_failure(known, "job", WorkerFailure(at, node, revision, well), "it died")


def _failing(times: int, every: float, *, well: bool = False) -> Failures:
    known: Failures | None = None
    for number in range(times):
        known = _fail(known, NOW + number * every, well=well)
    assert known is not None
    return known


def test_starts_that_fail_in_a_row_are_tried_after_a_growing_back_off() -> None:
    delays = [POLICY.retry(consecutive_failures(_failing(times, 1.0))) for times in range(1, 8)]
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]


@pytest.mark.parametrize("outage", [16.0, 40.0, 60.0])
def test_an_outage_of_a_minute_gives_no_job_up(outage: float) -> None:
    """Whatever a start takes: here it takes no time at all, so that as many as can be fail."""
    known, now = None, 0.0
    while now < outage:
        known = _fail(known, now)
        now += POLICY.retry(consecutive_failures(known))
    assert known is not None
    assert not POLICY.gives_up(known)
    assert now < outage + POLICY.longest_retry, "it is tried again soon after"


def test_a_job_is_given_up_after_eight_failures_in_a_row() -> None:
    assert not POLICY.gives_up(_failing(7, 30.0))
    assert POLICY.gives_up(_failing(8, 30.0))


def test_starts_that_hang_count_however_long_they_take() -> None:
    hanging = _failing(8, 500.0)
    assert (hanging.count, consecutive_failures(hanging)) == (8, 8)
    assert POLICY.moves(_failing(3, 500.0), 1, NOW + 1001)
    assert POLICY.gives_up(hanging)


def test_crashing_every_minute_without_a_batch_is_counted_and_given_up() -> None:
    assert POLICY.gives_up(_failing(8, 61.0))


def test_crashing_every_minute_with_batches_is_told_of_and_never_given_up() -> None:
    crashing = _failing(500, 61.0, well=True)
    assert crashing.count == 10, "those of the window"
    assert POLICY.alarms(crashing, crashing.at)
    assert not POLICY.gives_up(crashing)
    assert POLICY.retry(consecutive_failures(crashing)) == POLICY.first_retry


def test_failures_from_before_a_worker_ran_well_are_forgotten_after_the_window() -> None:
    old = _failing(4, 1.0)
    assert _fail(old, NOW + 100, well=True).count == 5
    assert _fail(old, NOW + 700, well=True).count == 1
    assert _fail(old, NOW + 700).count == 5, "nothing has run well since"


def test_a_clock_that_is_set_neither_keeps_failures_for_ever_nor_counts_old_ones() -> None:
    crashed = _failing(4, 1.0, well=True)
    assert _fail(crashed, NOW + 3600, well=True).count == 1
    assert _fail(crashed, NOW - 3600, well=True).count == 1


def test_a_worker_that_keeps_failing_on_one_node_moves_also_when_the_leader_sees_more_than_three() -> None:
    for times, moves in ((2, False), (3, True), (4, True)):
        assert POLICY.moves(_failing(times, 1.0), 1, NOW) is moves
    elsewhere = _fail(_failing(3, 1.0), NOW + 5, node="n2")
    assert not POLICY.moves(elsewhere, 2, NOW + 5)
    assert POLICY.troubled_nodes(elsewhere) == {"n1"}
    assert not POLICY.moves(_failing(3, 1.0), 1, NOW + 700), "that is long ago"


def test_an_update_falls_back_after_three_failures_on_one_node_and_one_on_another() -> None:
    three = _failing(3, 1.0)
    assert not POLICY.falls_back(three)
    assert POLICY.falls_back(_fail(three, NOW + 5, node="n2"))


def test_people_are_told_after_five_failures() -> None:
    assert not POLICY.alarms(_failing(4, 1.0), NOW)
    five = _failing(5, 1.0)
    assert POLICY.alarms(five, five.at + 600)
    assert not POLICY.alarms(five, five.at + 601)


def test_a_job_that_has_failed_is_tried_again_after_ten_minutes_and_at_most_an_hour() -> None:
    assert [POLICY.second_chance(number) for number in range(5)] == [600, 1200, 2400, 3600, 3600]
    assert not POLICY.is_due(NOW, 600.0, NOW + 599)
    assert POLICY.is_due(NOW, 600.0, NOW + 600)
    assert POLICY.is_due(NOW, 600.0, NOW - 3600), "the clock was set back"


def test_the_patience_with_a_start_is_doubled_twice() -> None:
    assert [POLICY.start_limit(120.0, tried) for tried in range(4)] == [120, 240, 480, 480]


def test_a_worker_runs_well_when_it_has_committed_a_batch_or_run_for_the_window() -> None:
    assert not POLICY.ran_well(Progress(), 599.0)
    assert POLICY.ran_well(Progress(), 600.0)
    assert POLICY.ran_well(Progress(batches=2), 0.0)
    starting = WorkerInfo("job", 1, 1, "n1", 1, "starting", NOW)
    assert ClusterState().up_for(starting, NOW + 9000) == 0.0
    assert ClusterState().up_for(replace(starting, phase="ready"), NOW + 9) == 9.0
    assert not has_committed(Progress(batches=1)), "it may be one that was committed before"
    assert has_committed(Progress(batches=1, records_in=1))
    assert has_committed(Progress(batches=2))


def test_documents_of_older_versions_are_understood() -> None:
    old = Failures("job", 1, 4, "it died", "n1", NOW)
    assert consecutive_failures(old) == 4
    assert POLICY.moves(old, 1, NOW)
    assert not has_run_well(old)
    assert _fail(old, NOW + 1).count == 5


def test_a_worker_that_is_never_given_up_does_not_fill_the_store() -> None:
    many = _failing(1000, 30.0)
    assert (many.count, len(many.recent)) == (20, 20)


def test_what_people_are_told() -> None:
    assert describe_failures(_failing(1, 1.0)) == "its worker has failed once, last on n1: it died"


def test_the_page_has_the_numbers_of_the_policy() -> None:
    page = PAGE.read_text()
    start = page.index("### The failure policy")
    table = page[start : page.index("\n## ", start)]
    for text in (
        f"{POLICY.first_retry:g} s",
        f"{POLICY.longest_retry:g} s",
        f"{POLICY.move_after} failures of one worker",
        f"{POLICY.fall_back_after} failures in a row",
        f"{POLICY.alarm_after} failures",
        f"{POLICY.give_up_after} failures in a row",
        f"{POLICY.window / 60:g} minutes",
        f"{POLICY.first_chance / 60:g} minutes, then {2 * POLICY.first_chance / 60:g}",
        f"{POLICY.longest_chance / 60:g} minutes",
    ):
        assert text in table, text
