"""Which jobs are forgotten, and when."""

from __future__ import annotations

from typing import Any

from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.job_documents import Alarm, JobSpec, JobStatus, Tombstone
from penstock.cluster.job_retention import Retention, retention_actions
from penstock.cluster.leader_actions import Action, Clear, DropNode, DropTombstone, Forget, KeepRevision
from penstock.cluster.node_documents import KnownNode, NodeInfo
from penstock.cluster.worker_documents import Failures, Result, WorkerInfo
from support.settings import make_assignment, make_spec, replace

DAY = 86400.0
NOW = 100 * DAY


def _spec(name: str, **changes: Any) -> JobSpec:
    return replace(make_spec(name, "a" * 64, "job.py"), **changes)


def _decide(
    jobs: dict[str, tuple[str, float]], rules: Retention | None = None, **changes: Any
) -> list[Action]:
    """Decide about jobs, given the phase of each and for how many days it has it."""
    statuses = {name: JobStatus(phase, "", NOW - days * DAY, 3) for name, (phase, days) in jobs.items()}
    desired = {name: _spec(name) for name in jobs} | changes.pop("desired", {})
    return retention_actions(desired, replace(ClusterState(statuses=statuses), **changes), NOW, rules)


def _forgotten(actions: list[Action]) -> list[str]:
    return [action.job for action in actions if isinstance(action, Forget)]


def test_a_job_that_has_ended_is_forgotten_after_a_week_and_one_that_has_failed_is_not() -> None:
    jobs = {"new": ("ENDED", 6.9), "old": ("ENDED", 7.0), "failed": ("FAILED", 90.0), "runs": ("RUNNING", 90)}
    assert _forgotten(_decide(jobs)) == ["old"]


def test_of_too_many_jobs_the_oldest_that_have_ended_go_first_and_then_failed_ones() -> None:
    jobs = {"a": ("ENDED", 1.0), "b": ("ENDED", 2.0), "c": ("FAILED", 5.0), "d": ("FAILED", 4.0)}
    assert _forgotten(_decide(jobs, Retention(jobs=2))) == ["b", "a"]
    assert _forgotten(_decide(jobs, Retention(jobs=1))) == ["b", "a", "c"]
    assert _forgotten(_decide(jobs, Retention(jobs=4))) == []


def test_nothing_is_forgotten_of_what_is_assigned_runs_cannot_be_read_or_is_with_its_node() -> None:
    jobs = dict.fromkeys(("assigned", "runs", "unreadable", "kept", "gone"), ("ENDED", 30.0))
    found = _decide(
        jobs,
        desired={"kept": _spec("kept", data_location="node")},
        assignments={"assigned~1": make_assignment("assigned~1", 1, 1, 1, "", "", "n1", 1, 1)},
        workers={"runs": (WorkerInfo("runs", 3, 1, "n1", 1, "stopping", NOW),)},
        unreadable={"unreadable": "schema 2"},
    )
    assert _forgotten(found) == ["gone"]


def test_what_a_worker_has_left_of_a_job_that_is_gone_is_removed() -> None:
    left: dict[str, Any] = {"results": {"a~1": Result("a~1", 4, "stopped", "", NOW)}}
    assert _forgotten(_decide({}, **left)) == ["a"]
    failures = {"a": Failures("a", 4, 1, "", "n1", NOW)}
    assert _forgotten(_decide({"a": ("RUNNING", 1.0)}, failures=failures, **left)) == []


def test_tombstones_go_after_the_same_time() -> None:
    stones = {name: Tombstone(name, 3, False, NOW - days * DAY) for name, days in (("a", 7.0), ("b", 6.0))}
    assert _decide({}, tombstones=stones) == [
        DropTombstone("a", "all supervisors have had time to remove its files")
    ]
    both = _decide({}, Retention(jobs=0), tombstones=stones)
    assert [action.job for action in both if isinstance(action, DropTombstone)] == ["a", "b"]


def test_only_some_are_forgotten_at_once() -> None:
    jobs = {f"job{number:04}": ("ENDED", 8.0) for number in range(250)}
    assert len(_forgotten(_decide(jobs))) == 100


def test_the_largest_revision_is_noted_before_jobs_are_forgotten() -> None:
    jobs = {"old": ("ENDED", 8.0)}
    noted = KeepRevision(3, "jobs that are submitted later start above it")
    assert _decide(jobs)[0] == noted
    assert noted not in _decide(jobs, revisions=3)


def test_a_node_that_is_gone_for_good_is_expected_no_more_after_a_while() -> None:
    lost = {"node-lost.n1": Alarm("node-lost.n1", "node-lost", "n1", "it is gone", NOW - 7 * DAY)}
    known = {"n1": KnownNode("n1", 1.0)}
    reason = "it has been lost for 7.0 days"
    assert _decide({}, alarms=lost, known=known) == [DropNode("n1", reason), Clear("node-lost.n1", reason)]
    assert _decide({}, Retention(seconds=8 * DAY), alarms=lost, known=known) == []
    assert _decide({}, alarms=lost, known=known, nodes={"n1": NodeInfo("n1", "", 1, 1)}) == []
    needs = {"job": make_assignment("job", 1, 1, 1, "", "", "n1", 1, 1)}
    assert _decide({"job": ("RUNNING", 1.0)}, alarms=lost, known=known, assignments=needs) == []
