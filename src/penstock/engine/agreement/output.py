"""What becomes of a replica's output of a batch: it counts, or it is dropped because another's does.

Whoever loses compares, and sees to it that the winner's output gets out, so that a winner that dies between
the two leaves no gap.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from penstock.engine.agreement.core import BatchAction, after_batch
from penstock.engine.agreement.folder import AgreementFolder, Commit, ReplicaProgress
from penstock.engine.agreement.pacing import first_batch_to_keep
from penstock.engine.agreement.standby import Standby
from penstock.engine.blueprint import Blueprint
from penstock.engine.ledger import LedgerEntry
from penstock.engine.publishing import acknowledge, discard, publish, tidy
from penstock.errors import ReplicaDivergedError, ReplicaOutdatedError, SupersededError

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
            whole = not self._blueprint.folders.unwhole.exists()
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
        """Bring out, in order, all before a batch of which nobody has said that it is out.

        Who gave the batch before may have died before it came to what was left to it.
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
        if self._blueprint.folders.unwhole.exists() or offer.batch <= self._member.may_differ_until:
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
