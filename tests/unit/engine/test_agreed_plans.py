"""What a replica plans, and for how long it waits for others."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.agreement.folder import Agreement, Charter, Standing
from penstock.engine.agreement.member import Member
from penstock.engine.agreement.planning import AgreedPlans
from penstock.engine.blueprint import Folders

BATCH = 0.5
LOOK = 0.01


class Clock:
    """A time that passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "time", lambda: self.now)


def plan_one(plans: AgreedPlans, batch: int, clock: Clock) -> float:
    """Plan a batch and run it; return how long it was waited before."""
    began = clock.now
    start: dict[str, Any] = {"batch": batch}
    while plans.next(start, lambda: {"batch": batch + 1}) == start:
        clock.now += LOOK
    waited = clock.now - began
    clock.now += BATCH
    return waited


def test_waiting_for_one_that_is_behind_does_not_grow_from_batch_to_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    agreement = Agreement(tmp_path / "agreed")
    agreement.found(Charter(0, {}))
    plans = AgreedPlans(Member("count", 0, str(tmp_path / "agreed")), Folders(str(tmp_path / "job")))
    for batch in range(5):
        assert plan_one(plans, batch, clock) == 0.0
    waits = []
    for batch in itertools.islice(itertools.count(5), 40):
        agreement.stand(Standing("count~1", 0, clock.now, BATCH))
        waits.append(plan_one(plans, batch, clock))
    assert all(0.0 < waited <= 0.6 * BATCH for waited in waits), waits
