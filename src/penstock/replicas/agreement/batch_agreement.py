"""One replica's agreement with the others about each batch: what it reads, and whose output is published.

``AgreedPlans`` is called before a batch, ``AgreedOutput`` after it. A replica whose output was not chosen
compares its digests with the committed ones, and ensures that the committed output is published, so that the
death of the replica that committed it leaves no gap. If only the primary publishes, ``Standby`` decides which
replica is the primary and what a backup holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.engine.blueprint import Blueprint
from penstock.engine.job_sinks import discard, publish, tidy
from penstock.engine.job_sources import acknowledge
from penstock.engine.storage.job_folder import JobFolders
from penstock.engine.storage.ledger import LedgerEntry
from penstock.errors import ReplicaDivergedError, ReplicaOutdatedError, SupersededError
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import (
    BatchAction,
    Commit,
    Plan,
    ReplicaProgress,
    ReplicaSpec,
    after_batch,
    before_batch,
    first_batch_to_keep,
    pause,
)
from penstock.replicas.agreement.held_output import drop, is_held, release

Offset = dict[str, Any]


class AgreedPlans:
    """Agrees on the plans of batches for one replica."""

    def __init__(self, replica_spec: ReplicaSpec, folders: JobFolders) -> None:
        self._replica_spec = replica_spec
        self._folders = folders
        self._agreement = AgreementFolder(replica_spec.folder, synced=folders.synced)
        self._planned_at = 0.0
        self._usual_interval = 0.0
        """The recent average time between two plans, without waits for other replicas."""
        self._waiting_since = 0.0

    def begin(self) -> Offset | None:
        """Return the start of the first batch, if the agreement began with it."""
        charter = self._agreement.charter()
        return {"batch": 0, "sources": dict(charter.sources)} if charter and charter.sources else None

    def next(self, start: Offset, propose: Callable[[], Offset]) -> Offset:
        """Return the end of the batch that begins at ``start``; ``start`` itself if it cannot run yet.

        Raises ReplicaOutdatedError when the others are so far ahead that they have removed the batch's plan.
        """
        batch = start["batch"]
        seen = self._agreement.see(batch)
        wanted = start if seen.planned else propose()
        whole = not self._folders.state_incomplete.exists()
        action = before_batch(batch, seen, work=wanted != start, whole=whole)
        if action is BatchAction.REBUILD:
            raise ReplicaOutdatedError(
                f"batch {batch} was removed from the agreement, which begins with batch {seen.floor} now"
            )
        if action is BatchAction.WAIT or (action is BatchAction.PROPOSE and self._must_wait(batch)):
            return start
        if action is BatchAction.PROPOSE:
            plan = self._agreement.propose(Plan(batch, wanted, self._replica_spec.name, time.time()))
        else:
            found = self._agreement.plan(batch)
            assert found is not None, "a plan that was seen stays"
            plan = found
        self._note_pace()
        return dict(plan.end)

    def _must_wait(self, batch: int) -> bool:
        """Return whether to wait with the next plan, so that another replica can catch up."""
        since = time.monotonic() - self._planned_at
        replica_progress = self._agreement.replica_progress()
        waits = (
            pause(batch, self._replica_spec.name, replica_progress, time.time(), since, self._usual_interval)
            > 0.0
        )
        if waits and not self._waiting_since:
            self._waiting_since = time.monotonic()
        return waits

    def _note_pace(self) -> None:
        now = time.monotonic()
        if self._planned_at:
            # Waits do not count: otherwise each wait would make the next one longer.
            interval = min((self._waiting_since or now) - self._planned_at, 10.0)
            self._usual_interval = (
                interval if not self._usual_interval else 0.8 * self._usual_interval + 0.2 * interval
            )
        self._planned_at, self._waiting_since = now, 0.0


_MIN_PRIMARY_SECONDS = 0.2


class Standby:
    """Tracks whether a replica is the primary, and holds its output while it is not."""

    def __init__(self, blueprint: Blueprint) -> None:
        assert blueprint.replica_spec is not None, "only replicas hold anything"
        self._sinks = blueprint.sinks
        self._folder = Path(blueprint.replica_spec.scratch)
        self._primary_file = blueprint.folders.primary
        self._until = 0.0
        if blueprint.replica_spec.number == 0 and blueprint.folders.is_new:
            self._primary_file.touch(mode=0o600)

    def begin(self, seconds: float) -> None:
        """Start the time of the primary to commit: as long as the batch took here."""
        self._until = time.monotonic() + max(_MIN_PRIMARY_SECONDS, seconds)

    def holds(self) -> bool:
        """Return whether this is a backup and the primary still has time."""
        return not self._primary_file.exists() and time.monotonic() < self._until

    def release(self, batch: int, receipts: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Write held output to the sinks; return all receipts of the batch."""
        released: dict[str, list[Any]] = {}
        for name, given in receipts.items():
            for receipt in given:
                made = (
                    release(self._sinks[name], receipt, self._folder, batch)
                    if is_held(receipt)
                    else [receipt]
                )
                released.setdefault(name, []).extend(made)
        self._drop(receipts)
        return released

    def settled(self, mine: bool, receipts: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Note whether this is the primary now; drop held output, and return the other receipts."""
        if mine:
            self._primary_file.touch(mode=0o600)
        else:
            self._primary_file.unlink(missing_ok=True)
        self._drop(receipts)
        return {name: [one for one in given if not is_held(one)] for name, given in receipts.items()}

    def _drop(self, receipts: Mapping[str, list[Any]]) -> None:
        for given in receipts.values():
            for receipt in given:
                if is_held(receipt):
                    drop(receipt, self._folder)


_STATE_EVERY = 16
"""The interval, in batches, at which replicas also compare their changes of state."""
_FORGET_EVERY = 64
_POLL_SECONDS = 0.003
_DELIVERY_SECONDS = 10.0
"""Seconds that the winner of a batch gets to write to a sink that two replicas must not write at once."""


@dataclass
class Offer:
    """The result of a replica for a batch."""

    batch: int
    end: Mapping[str, Any]
    receipts: dict[str, list[Any]]
    digests: Mapping[str, int]
    state: Mapping[str, int]
    """The digest of all changes of state so far, by vertex."""
    seconds: float = 0.0


class AgreedOutput:
    """Agrees on the output of batches for one replica."""

    def __init__(self, blueprint: Blueprint) -> None:
        assert blueprint.replica_spec is not None, "only replicas agree"
        self._blueprint = blueprint
        self._replica_spec = blueprint.replica_spec
        self._agreement = AgreementFolder(blueprint.replica_spec.folder, synced=blueprint.folders.synced)
        self._standby = Standby(blueprint) if blueprint.replica_spec.holds else None
        self._generations_differ = False
        """Whether other code has recently committed a batch: then different results are not an error."""
        self._settled_at: dict[int, float] = {}
        """When this replica settled each batch that was not removed."""

    def settle(self, offer: Offer) -> Commit:
        """Publish the output of a batch, this replica's or another's, and return its commit.

        Raises ReplicaDivergedError when this replica has another result, ReplicaOutdatedError when it is too
        far behind.
        """
        batch = offer.batch
        committed, mine = self._agree(offer)
        transactional, own = self._split_transactional(offer.receipts)
        if not mine:
            discard(self._blueprint, transactional)
            self._compare(offer, committed)
        else:
            self._publish_earlier_batches(batch)
        self._publish(committed, is_winner=mine)
        if mine or self._standby is None:
            # These sinks cannot publish what another process has staged; readers recognise duplicates by ids.
            publish(self._blueprint, batch, own)
        if mine:
            tidy(self._blueprint)  # All earlier batches are published now.
        self._agreement.report_progress(
            ReplicaProgress(self._replica_spec.name, batch, time.time(), offer.seconds)
        )
        self._forget(batch)
        return committed

    def resume(self, last: LedgerEntry) -> None:
        """Publish the last batch of a replica that restarts and may have died before publishing it."""
        charter = self._agreement.charter()
        if charter is not None and last.batch < charter.begin:
            # A batch from before the agreement belongs to the first replica.
            own = self._replica_spec.number == 0
            publish(self._blueprint, last.batch, last.receipts if own else self._shared(last.receipts))
        elif self._agreement.see(last.batch).committed:
            committed = self._agreement.committed(last.batch)
            assert committed is not None, "a commit that was seen stays"
            self._publish(committed)

    def is_published(self, batch: int) -> bool:
        """Return whether all output of a batch is known to be published, by any replica."""
        charter = self._agreement.charter()
        if charter is not None and batch < charter.begin:
            return self._replica_spec.number == 0  # The first replica has published it.
        return self._agreement.is_published(batch)

    def _publish(self, committed: Commit, *, is_winner: bool = False) -> None:
        """Publish the committed output of a batch, unless it is marked as published.

        ``is_winner`` means that this attempt has committed it. The replica that has committed it publishes
        all of it, also after a restart; others only the sinks that several replicas may write at once.
        """
        if not is_winner and self._agreement.is_published(committed.batch):
            return
        whole = committed.by == self._replica_spec.name or self._all_shared(committed.receipts)
        publish(
            self._blueprint,
            committed.batch,
            committed.receipts if whole else self._shared(committed.receipts),
        )
        if whole:
            self._agreement.mark_published(committed.batch)

    def _agree(self, offer: Offer) -> tuple[Commit, bool]:
        """Return the commit of the batch, and whether it is that of the offer."""
        attempt = uuid4().hex
        batch = offer.batch
        if self._standby is not None:
            self._standby.begin(offer.seconds)
        while True:
            seen = self._agreement.see(batch)
            whole = not self._blueprint.folders.state_incomplete.exists()
            stopping = self._blueprint.folders.stop_request.exists()
            holds = self._standby is not None and self._standby.holds() and not stopping
            action = after_batch(batch, seen, whole=whole, holds=holds)
            if action is BatchAction.REBUILD:
                raise ReplicaOutdatedError(
                    f"batch {batch} was removed from the agreement, which begins with batch {seen.floor} now"
                )
            if action is not BatchAction.WAIT:
                break
            if stopping:
                raise SupersededError(f"the other replicas commit batch {batch}: this one was stopped")
            time.sleep(_POLL_SECONDS)
        if action is BatchAction.COMMIT:
            if self._standby is not None:
                offer.receipts = self._standby.release(batch, offer.receipts)
            committed = self._agreement.commit(self._commit(offer, attempt))
        else:
            found = self._agreement.committed(batch)
            assert found is not None, "a commit that was seen stays"
            committed = found
        mine = committed.id == attempt
        if self._standby is not None:
            offer.receipts = self._standby.settled(mine, offer.receipts)
        return committed, mine

    def _commit(self, offer: Offer, attempt: str) -> Commit:
        return Commit(
            offer.batch,
            attempt,
            self._replica_spec.name,
            self._replica_spec.generation,
            offer.end,
            self._split_transactional(offer.receipts)[0],
            offer.digests,
            offer.state if offer.batch % _STATE_EVERY == 0 else {},
            time.time(),
        )

    def _split_transactional(
        self, receipts: Mapping[str, list[Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Return the receipts of transactional sinks, and those of other sinks."""
        sinks = self._blueprint.sinks
        known = {name: given for name, given in receipts.items() if sinks[name].transactional}
        return known, {name: given for name, given in receipts.items() if name not in known}

    def _shared(self, receipts: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Return the receipts of sinks to which several replicas may publish at once without duplicates."""
        sinks = self._blueprint.sinks
        return {name: given for name, given in receipts.items() if sinks[name].shared}

    def _all_shared(self, receipts: Mapping[str, list[Any]]) -> bool:
        return len(self._shared(receipts)) == len(receipts)

    def _publish_earlier_batches(self, batch: int) -> None:
        """Publish, in order, all earlier batches that no replica has marked as published.

        The replica whose output counted may have died before it published it.
        """
        first = batch
        while first > 0 and not self._agreement.is_published(first - 1):
            first -= 1
        for left in range(first, batch):
            self._publish_left(left)

    def _publish_left(self, batch: int) -> None:
        """Publish a batch that the replica which committed it has not marked as published.

        If two replicas must not write a sink at once, that replica first gets time to finish.
        """
        left = self._agreement.committed(batch)
        if left is None:
            return
        deadline = time.monotonic() + (0.0 if self._all_shared(left.receipts) else _DELIVERY_SECONDS)
        while not self._agreement.is_published(batch):
            if time.monotonic() >= deadline:
                publish(self._blueprint, batch, left.receipts)
                self._agreement.mark_published(batch)
                return
            time.sleep(_POLL_SECONDS)

    def _compare(self, offer: Offer, committed: Commit) -> None:
        """Raise ReplicaDivergedError when the result of this replica differs from the committed one."""
        if (
            self._blueprint.folders.state_incomplete.exists()
            or offer.batch <= self._replica_spec.may_differ_until
        ):
            return  # This replica lacks state, or no replica has the state behind the committed result.
        if committed.generation != self._replica_spec.generation:
            self._generations_differ = True
            return
        state = _different(offer.state, committed.state) if offer.state and committed.state else None
        vertex = state or _different(offer.digests, committed.digests)
        if vertex is not None:
            what = "state" if state else "output"
            raise ReplicaDivergedError(
                self._blueprint.job,
                offer.batch,
                vertex,
                committed.by,
                f"replica {self._replica_spec.name} came to another {what} than {committed.by},"
                " whose output was committed",
                alarming=not self._generations_differ,
            )
        if committed.state:
            self._generations_differ = False

    def _forget(self, batch: int) -> None:
        """At intervals, remove old batches, which only a replica that is far behind would need."""
        now = time.monotonic()
        self._settled_at[batch] = now
        if batch % _FORGET_EVERY:
            return
        floor = first_batch_to_keep(self._settled_at, now)
        if floor == min(self._settled_at):
            return
        settled = self._agreement.committed(floor)
        self._agreement.forget(floor)
        self._settled_at = {known: at for known, at in self._settled_at.items() if known >= floor}
        if settled is not None:
            # A replica that is further behind copies a snapshot, so no replica reads earlier input again.
            acknowledge(self._blueprint, settled.end)


def _different(mine: Mapping[str, int], theirs: Mapping[str, int]) -> str | None:
    """Return the first name with different digests. A missing digest counts as 0."""
    names = sorted({*mine, *theirs})
    return next((name for name in names if mine.get(name, 0) != theirs.get(name, 0)), None)
