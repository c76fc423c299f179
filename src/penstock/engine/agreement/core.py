"""What a replica does next, from what it sees of the shared place. Pure, small enough to be checked whole.

The shared place holds for each batch at most one plan (what the batch reads) and at most one commit (whose
output of it counts). Both are made once and never changed; the batches below ``floor`` have been forgotten
there, and are committed. Whatever a replica does is one of the moves below, so that every order of the moves
of several replicas, with any of them dying anywhere, can be tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from penstock.errors import JobFailedError


class BatchAction(Enum):
    """What to do."""

    FOLLOW = "follow"
    """Run the batch that is planned."""
    PROPOSE = "propose"
    """Plan the batch; if another was faster, run what that planned."""
    WAIT = "wait"
    """Do nothing now."""
    COMMIT = "commit"
    """Offer the output of the batch; if another was faster, accept that."""
    ACCEPT = "accept"
    """Drop the own output: there is one that counts."""
    REBUILD = "rebuild"
    """Begin again from a snapshot of another replica: the shared place no longer has what comes next."""


@dataclass(frozen=True)
class BatchStatus:
    """What a replica sees of one batch in the shared place."""

    floor: int
    planned: bool = False
    committed: bool = False


def before_batch(batch: int, seen: BatchStatus, *, work: bool, whole: bool = True) -> BatchAction:
    """Return what to do about the next batch of a replica.

    ``work`` says whether there is anything to plan; ``whole`` is false for a replica whose state lacks what
    came before it joined, which must not decide about anything yet.

    >>> before_batch(3, Seen(floor=0, planned=True), work=False)
    <Move.FOLLOW: 'follow'>
    >>> before_batch(3, Seen(floor=4), work=True)
    <Move.REBUILD: 'rebuild'>
    """
    if batch < seen.floor:
        return BatchAction.REBUILD
    if seen.planned:
        return BatchAction.FOLLOW
    return BatchAction.PROPOSE if work and whole else BatchAction.WAIT


def after_batch(batch: int, seen: BatchStatus, *, whole: bool = True, holds: bool = False) -> BatchAction:
    """Return what to do with the output of a batch that a replica has run.

    ``holds`` is true for a backup that still gives the primary its time.

    >>> after_batch(3, Seen(floor=0, planned=True, committed=True))
    <Move.ACCEPT: 'accept'>
    >>> after_batch(3, Seen(floor=0, planned=True), holds=True)
    <Move.WAIT: 'wait'>
    """
    if batch < seen.floor:
        return BatchAction.REBUILD
    if seen.committed:
        return BatchAction.ACCEPT
    return BatchAction.COMMIT if whole and not holds else BatchAction.WAIT


class JoinAction(Enum):
    """How a replica comes in."""

    CREATE = "found"
    """It makes the shared place."""
    WAIT = "wait"
    """Whoever makes the shared place has not yet."""
    BEGIN = "begin"
    """It begins with the first batch, like the others."""
    GO_ON = "go on"
    """It goes on after its own last batch."""
    COPY = "copy"
    """It copies the newest snapshot of another replica."""
    SKIP = "skip"
    """It holds no state, and goes on after the last batch that is committed."""


@dataclass(frozen=True)
class AgreementStatus:
    """The shared place as a replica finds it that comes in."""

    begin: int
    """The first batch that was ever agreed on."""
    floor: int
    """The first that is not forgotten."""
    head: int
    """The last that is planned; one before ``floor`` if none is."""
    done: int = -1
    """The last that is committed; one before ``floor`` if none is."""


def enter(
    number: int,
    own: int,
    shared: AgreementStatus | None,
    others: Mapping[str, int],
    *,
    stray: bool = False,
    stateless: bool = False,
    new: bool = False,
    far: int = 20,
) -> tuple[JoinAction, str]:
    """Return how a replica comes in, and whom it copies.

    ``own`` and ``others`` are last batches, -1 for none; of ``others`` only those whose state can be trusted
    count. A replica that is ``far`` behind copies rather than runs all batches in between; one that has gone
    ``stray`` goes on from what it has only if there is nothing better, and then has to put up with another's
    output; a ``stateless`` one, whose job keeps nothing from batch to batch, needs no copy. If the job is
    ``new``, no replica has done a batch before there was a shared place: then anyone makes it, otherwise only
    the first, who knows of the batches before.

    >>> enter(0, -1, None, {})
    (<JoinAction.CREATE: 'found'>, '')
    >>> enter(1, -1, Shared(begin=0, floor=0, head=2), {"a": 2})
    (<JoinAction.BEGIN: 'begin'>, '')
    >>> enter(1, 5, Shared(begin=0, floor=30, head=90), {"a": 89, "b": 88})
    (<JoinAction.COPY: 'copy'>, 'a')
    >>> enter(1, 5, Shared(begin=0, floor=30, head=90, done=89), {"a": 89}, stateless=True)
    (<JoinAction.SKIP: 'skip'>, '')
    """
    if shared is None:
        return (JoinAction.CREATE if number == 0 or new else JoinAction.WAIT), ""
    if own > shared.head:
        raise JobFailedError(
            f"a replica has done batch {own}, and the shared place knows of none after {shared.head}: it was"
            " put back from an older copy. Put it back as it was, or start from scratch (--fresh)"
        )
    able = can_go_on(own, shared)
    if able and not stray and shared.head - own <= far:
        return _go_on(own), ""
    # A batch is needed that is still there: what it has put out may have to be published once more.
    if stateless and shared.done >= shared.floor and shared.done > own:
        return JoinAction.SKIP, ""
    best = max(sorted(others), key=lambda name: others[name], default="")
    if best and can_go_on(others[best], shared) and (stray or others[best] > own):
        return JoinAction.COPY, best
    return (_go_on(own) if able else JoinAction.WAIT), ""


def _go_on(own: int) -> JoinAction:
    return JoinAction.GO_ON if own >= 0 else JoinAction.BEGIN


def can_go_on(own: int, shared: AgreementStatus) -> bool:
    """Whether a replica with this last batch finds in the shared place all that comes next.

    >>> place = Shared(begin=0, floor=30, head=90)
    >>> can_go_on(29, place), can_go_on(28, place)
    (True, False)
    """
    return own + 1 >= shared.floor if own >= 0 else shared.begin == shared.floor == 0
