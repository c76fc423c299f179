"""What a replica's next batch reads: as is agreed on, or as it proposes itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from penstock.engine.agreement.core import BatchAction, before_batch
from penstock.engine.agreement.folder import AgreementFolder, Plan
from penstock.engine.agreement.member import ReplicaSpec
from penstock.engine.agreement.pacing import pause
from penstock.engine.blueprint import JobFolders
from penstock.errors import ReplicaOutdatedError

Offset = dict[str, Any]


class AgreedPlans:
    """The plans of one replica."""

    def __init__(self, replica_spec: ReplicaSpec, folders: JobFolders) -> None:
        self._member = replica_spec
        self._folders = folders
        self._agreement = AgreementFolder(replica_spec.folder, synced=folders.synced)
        self._planned_at = 0.0
        self._usual = 0.0
        """How long lately it has been from one plan to the next, but for what others were waited for."""
        self._waits_since = 0.0

    def begin(self) -> Offset | None:
        """Return where the first of all batches starts, if that was settled when the agreement was made."""
        charter = self._agreement.charter()
        return {"batch": 0, "sources": dict(charter.sources)} if charter and charter.sources else None

    def next(self, start: Offset, propose: Callable[[], Offset]) -> Offset:
        """Return the end of the batch after ``start``; the start itself when there is nothing to do yet.

        Raises ReplicaOutdatedError when the others are so far ahead that they have forgotten that batch.
        """
        batch = start["batch"]
        seen = self._agreement.see(batch)
        wanted = start if seen.planned else propose()
        whole = not self._folders.unwhole.exists()
        move = before_batch(batch, seen, work=wanted != start, whole=whole)
        if move is BatchAction.REBUILD:
            raise ReplicaOutdatedError(
                f"batch {batch} is history for the other replicas: they are at {seen.floor}"
            )
        if move is BatchAction.WAIT or (move is BatchAction.PROPOSE and self._must_wait(batch)):
            return start
        if move is BatchAction.PROPOSE:
            plan = self._agreement.propose(Plan(batch, wanted, self._member.name, time.time()))
        else:
            found = self._agreement.plan(batch)
            assert found is not None, "a plan that was seen stays"
            plan = found
        self._note_pace()
        return dict(plan.end)

    def _must_wait(self, batch: int) -> bool:
        """Whether another replica is behind and shall have time to catch up."""
        since = time.monotonic() - self._planned_at
        replica_progress = self._agreement.replica_progress()
        waits = pause(batch, self._member.name, replica_progress, time.time(), since, self._usual) > 0.0
        if waits and not self._waits_since:
            self._waits_since = time.monotonic()
        return waits

    def _note_pace(self) -> None:
        now = time.monotonic()
        if self._planned_at:
            # A wait that counted as usual would make the next one longer, and that the one after it.
            interval = min((self._waits_since or now) - self._planned_at, 10.0)
            self._usual = interval if not self._usual else 0.8 * self._usual + 0.2 * interval
        self._planned_at, self._waits_since = now, 0.0
