"""Waiting for a job: what was before does not count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from penstock.cli.job_wait import WaitTimeoutError, wait_for_phase
from penstock.errors import JobFailedError
from penstock.web.master_client import MasterClient


def _job(phase: str, since: float, *revisions: int, given_out: int = 0, outcome: str = "") -> dict[str, Any]:
    newest = max(revisions, default=0)
    return {
        "phase": phase,
        "reason": "",
        "since": since,
        "k": 0,
        "safety": "",
        "replicas": [],
        "status": {"revision": max(given_out, newest)},
        "assignment": {"revision": newest, "generation": newest} if revisions else None,
        "workers": [{"revision": revision} for revision in revisions],
        "result": {"outcome": outcome, "reason": "why"} if outcome else None,
        "spec": {"generation": newest},
        "failures": None,
    }


class _Answers:
    """Has the answers of a master ready."""

    def __init__(self, *jobs: dict[str, Any]) -> None:
        self._jobs: Iterator[dict[str, Any]] = iter(jobs)

    def job(self, name: str) -> dict[str, Any]:
        return next(self._jobs)

    def alarms(self) -> list[dict[str, Any]]:
        return [{"id": "update-refused.counting", "reason": "it died of its first record"}]


def _awaited(
    *jobs: dict[str, Any], phases: tuple[str, ...] = ("RUNNING", "ENDED"), **more: Any
) -> dict[str, Any]:
    client = cast(MasterClient, _Answers(*jobs))
    return wait_for_phase(client, "counting", phases, sleep=lambda _: None, **more)


def test_the_end_of_the_run_before_is_no_end() -> None:
    for phase in ("ENDED", "FAILED"):
        old = _job(phase, 1.0, given_out=3)
        assert _awaited(old, _job("PENDING", 2.0), _job("RUNNING", 3.0, 4), before=old)["since"] == 3.0
        assert _awaited(old, _job("ENDED", 4.0, given_out=4), before=old)["since"] == 4.0


def test_the_worker_before_is_not_the_one_that_is_waited_for() -> None:
    old = _job("RUNNING", 1.0, 3)
    assert _awaited(old, _job("RUNNING", 1.0, 3, 4), _job("RUNNING", 2.0, 4), before=old)["since"] == 2.0


def test_an_update_is_done_when_only_the_new_code_runs() -> None:
    updated = {"spec": {"generation": 2}}
    answers = (_job("RUNNING", 1.0, 1) | updated, _job("RUNNING", 1.0, 1, 2), _job("RUNNING", 2.0, 2))
    assert _awaited(*answers, generation=2)["since"] == 2.0


def test_an_update_that_was_taken_back_is_not_waited_for() -> None:
    updated = _job("RUNNING", 1.0, 1) | {"spec": {"generation": 2}}
    with pytest.raises(JobFailedError, match="returned to its previous code: it died of its first"):
        _awaited(updated, _job("RUNNING", 1.0, 1), generation=2)


def test_waiting_ends_in_time_and_says_what_it_was_for() -> None:
    failures = {"count": 2, "node": "n1", "reason": "hung: no sign of life"}
    starting = _job("STARTING", 1.0) | {"reason": "n1 starts its worker", "failures": failures}
    times = iter((0.0, 5.0, 9.9, 10.0))
    with pytest.raises(WaitTimeoutError) as raised:
        _awaited(starting, starting, starting, limit=10.0, clock=lambda: next(times))
    assert "job 'counting' is STARTING after 10 s: n1 starts its worker" in str(raised.value)
    assert "failed 2 times, last on n1: hung: no sign of life" in str(raised.value)


def test_a_job_that_ends_after_a_refused_update_has_not_failed() -> None:
    ended = _job("ENDED", 2.0, outcome="refused")
    ended["result"]["revision"] = 3
    assert _awaited({**ended, "spec": {"after": 3}}, phases=("ENDED",))["since"] == 2.0
    with pytest.raises(JobFailedError, match="cannot run: why"):
        _awaited({**ended, "spec": {"after": 2}}, phases=("ENDED",))


def test_what_fails_is_not_waited_for() -> None:
    with pytest.raises(JobFailedError, match="has failed"):
        _awaited(_job("STARTING", 1.0), _job("FAILED", 2.0))
    with pytest.raises(JobFailedError, match="cannot run: why"):
        _awaited(_job("ENDED", 2.0, outcome="refused"), phases=("ENDED",))


def _replicated(k: int, up: dict[int, int], *, in_step: int, generation: int = 1) -> dict[str, Any]:
    """A job whose replica N is assigned as revision N + 1; ``up`` are revisions by replica."""
    replicas = [
        {
            "revision": number + 1,
            "generation": generation,
            "phase": "running" if number in up else "missing",
            "in_step": number < in_step,
        }
        for number in range(k + 1)
    ]
    job = _job("RUNNING", float(in_step))
    workers = [{"revision": revision} for revision in up.values()]
    spec = {"settings": {"replicas": {"warm_standby": False}}, "generation": 2}
    return {**job, "k": k, "replicas": replicas, "workers": workers, "spec": spec}


def test_a_job_with_replicas_runs_when_one_does_and_is_safe_when_all_are_in_step() -> None:
    one, both = _replicated(1, {1: 2}, in_step=0), _replicated(1, {0: 1, 1: 2}, in_step=2)
    assert _awaited(_replicated(1, {}, in_step=0), one)["since"] == 0.0
    assert _awaited(one, _replicated(1, {0: 1, 1: 2}, in_step=1), both, safe=True)["since"] == 2.0


def test_replicas_that_are_too_many_are_waited_for_until_they_are_gone() -> None:
    left = _replicated(0, {0: 1, 1: 2}, in_step=1)
    assert _awaited(left, {**_replicated(0, {0: 1}, in_step=1), "since": 7.0}, safe=True)["since"] == 7.0


def test_an_update_is_done_when_no_replica_runs_the_old_code() -> None:
    old = _replicated(1, {0: 1, 1: 9}, in_step=2, generation=2)
    new = {**_replicated(1, {0: 1, 1: 2}, in_step=2, generation=2), "since": 5.0}
    assert _awaited(_replicated(1, {0: 1, 1: 2}, in_step=2), old, new, generation=2)["since"] == 5.0


def test_a_warm_standby_is_waited_for_until_it_is_ready() -> None:
    starting, ready = _replicated(1, {0: 1, 1: 2}, in_step=1), _replicated(1, {0: 1, 1: 2}, in_step=1)
    for job, phase in ((starting, "starting"), (ready, "ready")):
        job.update(k=0, spec={"settings": {"replicas": {"warm_standby": True}}})
        job["replicas"][1]["phase"] = phase
    assert _awaited(starting, {**ready, "since": 3.0}, safe=True)["since"] == 3.0
