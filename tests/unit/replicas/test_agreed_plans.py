"""What a replica plans, and for how long it waits for others."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from noting import Clock

from penstock.engine.storage.job_folder import JobFolders
from penstock.errors import ReplicaOutdatedError
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import Charter, Commit, Plan, ReplicaProgress, ReplicaSpec
from penstock.replicas.agreement.batch_agreement import AgreedPlans

BATCH = 0.5
LOOK = 0.01


def plan_one(plans: AgreedPlans, batch: int, clock: Clock) -> float:
    """Plan a batch and run it; return how long it was waited before."""
    began = clock.now
    start: dict[str, Any] = {"batch": batch}
    while plans.next(start, lambda: {"batch": batch + 1}) == start:
        clock.now += LOOK
    waited = clock.now - began
    clock.now += BATCH
    return waited


@pytest.fixture
def plans(tmp_path: Path) -> AgreedPlans:
    AgreementFolder(tmp_path / "agreed").create(Charter(0, {}))
    (tmp_path / "job").mkdir()
    return AgreedPlans(ReplicaSpec("count", 0, str(tmp_path / "agreed")), JobFolders(str(tmp_path / "job")))


def test_who_comes_second_reads_what_the_first_has_planned(tmp_path: Path, plans: AgreedPlans) -> None:
    AgreementFolder(tmp_path / "agreed").propose(Plan(0, {"batch": 1, "to": 5}, "count~1", 0.0))
    assert plans.next({"batch": 0}, _must_not_be_asked) == {"batch": 1, "to": 5}
    assert plans.next({"batch": 1}, lambda: {"batch": 2, "to": 9}) == {"batch": 2, "to": 9}


def _must_not_be_asked() -> dict[str, Any]:
    raise AssertionError("what there is to read does not matter where it is planned")


def test_who_lacks_state_plans_nothing_and_follows(tmp_path: Path, plans: AgreedPlans) -> None:
    (tmp_path / "job" / "unwhole").touch()
    assert plans.next({"batch": 0}, lambda: {"batch": 1}) == {"batch": 0}
    AgreementFolder(tmp_path / "agreed").propose(Plan(0, {"batch": 1}, "count~1", 0.0))
    assert plans.next({"batch": 0}, _must_not_be_asked) == {"batch": 1}


def test_without_anything_to_read_nothing_is_planned(tmp_path: Path, plans: AgreedPlans) -> None:
    assert plans.next({"batch": 0}, lambda: {"batch": 0}) == {"batch": 0}
    assert AgreementFolder(tmp_path / "agreed").plan(0) is None


def test_who_was_away_for_too_long_is_told_so(tmp_path: Path, plans: AgreedPlans) -> None:
    agreement = AgreementFolder(tmp_path / "agreed")
    for batch in range(3):
        agreement.propose(Plan(batch, {"batch": batch + 1}, "count~1", 0.0))
        agreement.commit(Commit(batch, "x", "count~1", 1, {}))
    agreement.forget(3)
    with pytest.raises(
        ReplicaOutdatedError,
        match="batch 1 was removed from the agreement, which begins with batch 3 now",
    ):
        plans.next({"batch": 1}, lambda: {"batch": 2})


@pytest.mark.parametrize(
    ("sources", "begin"), [({"in": {"0": 5}}, {"batch": 0, "sources": {"in": {"0": 5}}}), ({}, None)]
)
def test_all_begin_where_the_one_began_who_made_the_agreement(
    tmp_path: Path, sources: dict[str, Any], begin: dict[str, Any] | None
) -> None:
    AgreementFolder(tmp_path / "agreed").create(Charter(0, sources))
    plans = AgreedPlans(
        ReplicaSpec("count~1", 1, str(tmp_path / "agreed")), JobFolders(str(tmp_path / "job"))
    )
    assert plans.begin() == begin


def test_after_a_long_rest_nobody_is_waited_for_longer_than_before(
    tmp_path: Path, plans: AgreedPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    plan_one(plans, 0, clock)
    clock.now += 3600.0
    plan_one(plans, 1, clock)
    AgreementFolder(tmp_path / "agreed").report_progress(ReplicaProgress("count~1", -2, clock.now, BATCH))
    assert plan_one(plans, 2, clock) < 15.0


def test_waiting_for_one_that_is_behind_does_not_grow_from_batch_to_batch(
    tmp_path: Path, plans: AgreedPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    agreement = AgreementFolder(tmp_path / "agreed")
    for batch in range(5):
        assert plan_one(plans, batch, clock) == 0.0
    waits = []
    for batch in itertools.islice(itertools.count(5), 40):
        agreement.report_progress(ReplicaProgress("count~1", 0, clock.now, BATCH))
        waits.append(plan_one(plans, batch, clock))
    assert all(0.0 < waited <= 0.6 * BATCH for waited in waits), waits
