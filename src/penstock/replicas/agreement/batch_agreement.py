"""One replica's agreement with the others about each batch.

What it reads, and whose output of it is published. ``AgreedPlans`` is asked before a batch,
``AgreedOutput`` after it. A replica whose output does not count compares digests with the one that does,
and makes sure that the winner's output is published, so that a winner that dies leaves no gap. With standby
replication, ``Standby`` says who is the primary and what a backup holds.
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
        whole = not self._folders.state_incomplete.exists()
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


_SHORTEST = 0.2


class Standby:
    """Whether one replica is the primary, and what it holds as long as it is not."""

    def __init__(self, blueprint: Blueprint) -> None:
        assert blueprint.replica_spec is not None, "only replicas hold anything"
        self._sinks = blueprint.sinks
        self._folder = Path(blueprint.replica_spec.scratch)
        self._note = blueprint.folders.primary
        self._until = 0.0
        if blueprint.replica_spec.number == 0 and blueprint.folders.is_new:
            self._note.touch(mode=0o600)

    def begin(self, seconds: float) -> None:
        """Begin to give the primary its time: as long as the batch has taken here."""
        self._until = time.monotonic() + max(_SHORTEST, seconds)

    def holds(self) -> bool:
        """Whether this is a backup, and the primary still has time."""
        return not self._note.exists() and time.monotonic() < self._until

    def release(self, batch: int, receipts: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Write what is held to its sinks; return all receipts of the batch."""
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
        """Note who is the primary now; drop what is held, and return the receipts of what is not."""
        if mine:
            self._note.touch(mode=0o600)
        else:
            self._note.unlink(missing_ok=True)
        self._drop(receipts)
        return {name: [one for one in given if not is_held(one)] for name, given in receipts.items()}

    def _drop(self, receipts: Mapping[str, list[Any]]) -> None:
        for given in receipts.values():
            for receipt in given:
                if is_held(receipt):
                    drop(receipt, self._folder)


_STATE_EVERY = 16
"""Every so many batches replicas compare all changes of their state as well."""
_FORGET_EVERY = 64
_LOOK = 0.003
_DELIVERY_SECONDS = 10.0
"""How long whoever gave a batch may take to hand it to a sink that two replicas must not write at once."""


@dataclass
class Offer:
    """What a replica has made of a batch."""

    batch: int
    end: Mapping[str, Any]
    receipts: dict[str, list[Any]]
    digests: Mapping[str, int]
    state: Mapping[str, int]
    """By vertex, the digest of all changes of its state so far."""
    seconds: float = 0.0


class AgreedOutput:
    """Decides for one replica whose output of each batch counts."""

    def __init__(self, blueprint: Blueprint) -> None:
        assert blueprint.replica_spec is not None, "only replicas agree"
        self._blueprint = blueprint
        self._member = blueprint.replica_spec
        self._agreement = AgreementFolder(blueprint.replica_spec.folder, synced=blueprint.folders.synced)
        self._standby = Standby(blueprint) if blueprint.replica_spec.holds else None
        self._mixed = False
        """Whether a batch was given by other code lately: then results may differ without anybody's fault."""
        self._times: dict[int, float] = {}
        """When this replica has settled each batch that is not forgotten."""

    def settle(self, offer: Offer) -> Commit:
        """Bring the output of a batch out, this replica's or another's, and return the commit that counts.

        Raises ReplicaDivergedError when this replica came to something else, ReplicaOutdatedError when it is
        far behind.
        """
        batch = offer.batch
        stood, mine = self._agree(offer)
        transactional, own = self._by_kind(offer.receipts)
        if not mine:
            discard(self._blueprint, transactional)
            self._compare(offer, stood)
        else:
            self._deliver_what_was_left(batch)
        self._bring_out(stood, sure=mine)
        if mine or self._standby is None:
            # These can neither take over what another has staged nor be told twice: readers tell by the ids.
            publish(self._blueprint, batch, own)
        if mine:
            tidy(self._blueprint)  # Who gave a batch has brought out all that was left before it.
        self._agreement.report_progress(ReplicaProgress(self._member.name, batch, time.time(), offer.seconds))
        self._forget(batch)
        return stood

    def resume(self, last: LedgerEntry) -> None:
        """Bring out what a replica that starts again may have left of its last batch."""
        charter = self._agreement.charter()
        if charter is not None and last.batch < charter.begin:
            # Of the time before there were replicas: it is the first one's, and nobody has agreed on it.
            own = self._member.number == 0
            publish(self._blueprint, last.batch, last.receipts if own else self._shared(last.receipts))
        elif self._agreement.see(last.batch).committed:
            stood = self._agreement.committed(last.batch)
            assert stood is not None, "a commit that was seen stays"
            self._bring_out(stood)

    def is_published(self, batch: int) -> bool:
        """Whether all output of a batch is known to be out, whoever had to bring it out."""
        charter = self._agreement.charter()
        if charter is not None and batch < charter.begin:
            return self._member.number == 0  # It was for the first one to bring out.
        return self._agreement.is_published(batch)

    def _bring_out(self, stood: Commit, *, sure: bool = False) -> None:
        """Make the output of a batch visible that counts, unless that is known to be done.

        ``sure`` is who gave it; so is the same replica when it starts again. Others leave alone what must not
        be done twice at the same time.
        """
        if not sure and self._agreement.is_published(stood.batch):
            return
        whole = stood.by == self._member.name or self._all_shared(stood.receipts)
        publish(self._blueprint, stood.batch, stood.receipts if whole else self._shared(stood.receipts))
        if whole:
            self._agreement.mark_published(stood.batch)

    def _agree(self, offer: Offer) -> tuple[Commit, bool]:
        """Return whose output counts, and whether it is the one that is offered."""
        attempt = uuid4().hex
        batch = offer.batch
        if self._standby is not None:
            self._standby.begin(offer.seconds)
        while True:
            seen = self._agreement.see(batch)
            whole = not self._blueprint.folders.state_incomplete.exists()
            stopping = self._blueprint.folders.stop_request.exists()
            holds = self._standby is not None and self._standby.holds() and not stopping
            move = after_batch(batch, seen, whole=whole, holds=holds)
            if move is BatchAction.REBUILD:
                raise ReplicaOutdatedError(
                    f"batch {batch} is history for the other replicas: they are at {seen.floor}"
                )
            if move is not BatchAction.WAIT:
                break
            if stopping:
                raise SupersededError(f"batch {batch} is left to the other replicas: this one was stopped")
            time.sleep(_LOOK)
        if move is BatchAction.COMMIT:
            if self._standby is not None:
                offer.receipts = self._standby.release(batch, offer.receipts)
            stood = self._agreement.commit(self._commit(offer, attempt))
        else:
            found = self._agreement.committed(batch)
            assert found is not None, "a commit that was seen stays"
            stood = found
        mine = stood.id == attempt
        if self._standby is not None:
            offer.receipts = self._standby.settled(mine, offer.receipts)
        return stood, mine

    def _commit(self, offer: Offer, attempt: str) -> Commit:
        return Commit(
            offer.batch,
            attempt,
            self._member.name,
            self._member.generation,
            offer.end,
            self._by_kind(offer.receipts)[0],
            offer.digests,
            offer.state if offer.batch % _STATE_EVERY == 0 else {},
            time.time(),
        )

    def _by_kind(
        self, receipts: Mapping[str, list[Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Return receipts of transactional sinks, and those of others."""
        sinks = self._blueprint.sinks
        known = {name: given for name, given in receipts.items() if sinks[name].transactional}
        return known, {name: given for name, given in receipts.items() if name not in known}

    def _shared(self, receipts: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Return what several replicas may bring out at once without doubling it."""
        sinks = self._blueprint.sinks
        return {name: given for name, given in receipts.items() if sinks[name].shared}

    def _all_shared(self, receipts: Mapping[str, list[Any]]) -> bool:
        return len(self._shared(receipts)) == len(receipts)

    def _deliver_what_was_left(self, batch: int) -> None:
        """Publish, in order, all earlier batches that no replica has marked as published.

        The replica whose output counted may have died before it published it.
        """
        first = batch
        while first > 0 and not self._agreement.is_published(first - 1):
            first -= 1
        for left in range(first, batch):
            self._deliver(left)

    def _deliver(self, batch: int) -> None:
        """Bring out what the winner of a batch did not say that it has.

        Where that must not happen twice at the same time, the winner gets time to end it.
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
            time.sleep(_LOOK)

    def _compare(self, offer: Offer, stood: Commit) -> None:
        """Raise ReplicaDivergedError when this replica has come to something else than what counts."""
        if self._blueprint.folders.state_incomplete.exists() or offer.batch <= self._member.may_differ_until:
            return  # It lacks state, and knows; or nobody has the state that goes with what counts.
        if stood.generation != self._member.generation:
            self._mixed = True
            return
        state = _different(offer.state, stood.state) if offer.state and stood.state else None
        vertex = state or _different(offer.digests, stood.digests)
        if vertex is not None:
            what = "state" if state else "output"
            raise ReplicaDivergedError(
                self._blueprint.job,
                offer.batch,
                vertex,
                stood.by,
                f"replica {self._member.name} came to another {what} than {stood.by}, whose output counts",
                alarming=not self._mixed,
            )
        if stood.state:
            self._mixed = False

    def _forget(self, batch: int) -> None:
        """Now and then forget what no replica needs that is not far behind."""
        now = time.monotonic()
        self._times[batch] = now
        if batch % _FORGET_EVERY:
            return
        floor = first_batch_to_keep(self._times, now)
        if floor == min(self._times):
            return
        settled = self._agreement.committed(floor)
        self._agreement.forget(floor)
        self._times = {known: at for known, at in self._times.items() if known >= floor}
        if settled is not None:
            # Whoever is further behind copies a snapshot, so nobody reads what lies before this again.
            acknowledge(self._blueprint, settled.end)


def _different(mine: Mapping[str, int], theirs: Mapping[str, int]) -> str | None:
    """Return the first name by which both differ. The digest of nothing is 0."""
    names = sorted({*mine, *theirs})
    return next((name for name in names if mine.get(name, 0) != theirs.get(name, 0)), None)
