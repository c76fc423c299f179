"""The agreement protocol of replicas: their decisions, and the next action of a replica.

Pure, and small enough for a model checker. The shared folder holds for each batch at most one plan (what
the batch reads) and at most one commit (whose output counts). Both are made once and never changed; batches
below ``floor`` have been removed there and are committed. A replica does nothing but the actions here, so
every order of the actions of several replicas, with any of them dying anywhere, can be tried. Pacing only
affects speed: when a replica that is ahead waits for one behind, and how long plans and commits are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from penstock.errors import JobFailedError


@dataclass(frozen=True)
class ReplicaSpec:
    """One of the replicas of a job. All of them have the same agreement and different names."""

    name: str
    number: int
    agreement: str
    """The folder of the agreement, which all replicas share."""
    generation: int = 1
    """Of the code that it runs."""
    holds: bool = False
    """Whether it is one of a group in which only the primary puts its output where others see it, as long as
    it does so in time."""
    scratch: str = ""
    """A folder of this node alone, for output that is held."""
    may_differ_until: int = -1
    """The last batch in which it may differ: no replica has the state of the committed result."""

    @property
    def folder(self) -> Path:
        """The folder of the agreement."""
        return Path(self.agreement)


@dataclass(frozen=True)
class Charter:
    """Where the job was when its replicas began to agree."""

    begin: int
    """The first batch that is agreed on."""
    sources: Mapping[str, Any]
    """Where the sources began, for replicas that begin with batch 0."""


@dataclass(frozen=True)
class Plan:
    """What a batch reads."""

    batch: int
    end: Mapping[str, Any]
    by: str
    at: float


@dataclass(frozen=True)
class Commit:
    """Whose output of a batch counts."""

    batch: int
    id: str
    """Of the attempt that made the output. A replica that runs a batch twice makes two."""
    by: str
    """The name of the replica."""
    generation: int
    """Of the code that made it."""
    end: Mapping[str, Any]
    receipts: Mapping[str, list[Any]] = field(default_factory=dict)
    """Of sinks that can take over what another process has staged."""
    digests: Mapping[str, int] = field(default_factory=dict)
    """By sink, of what was written."""
    state: Mapping[str, int] = field(default_factory=dict)
    """By vertex, of all changes of its state so far; given at intervals only."""
    at: float = 0.0


@dataclass(frozen=True)
class ReplicaProgress:
    """How far a replica has come, by its own words."""

    name: str
    batch: int
    at: float
    seconds: float = 0.0
    """How long its last batch has taken."""


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

    >>> before_batch(3, BatchStatus(floor=0, planned=True), work=False)
    <BatchAction.FOLLOW: 'follow'>
    >>> before_batch(3, BatchStatus(floor=4), work=True)
    <BatchAction.REBUILD: 'rebuild'>
    """
    if batch < seen.floor:
        return BatchAction.REBUILD
    if seen.planned:
        return BatchAction.FOLLOW
    return BatchAction.PROPOSE if work and whole else BatchAction.WAIT


def after_batch(batch: int, seen: BatchStatus, *, whole: bool = True, holds: bool = False) -> BatchAction:
    """Return what to do with the output of a batch that a replica has run.

    ``holds`` is true for a backup that still gives the primary its time.

    >>> after_batch(3, BatchStatus(floor=0, planned=True, committed=True))
    <BatchAction.ACCEPT: 'accept'>
    >>> after_batch(3, BatchStatus(floor=0, planned=True), holds=True)
    <BatchAction.WAIT: 'wait'>
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
    >>> enter(1, -1, AgreementStatus(begin=0, floor=0, head=2), {"a": 2})
    (<JoinAction.BEGIN: 'begin'>, '')
    >>> enter(1, 5, AgreementStatus(begin=0, floor=30, head=90), {"a": 89, "b": 88})
    (<JoinAction.COPY: 'copy'>, 'a')
    >>> enter(1, 5, AgreementStatus(begin=0, floor=30, head=90, done=89), {"a": 89}, stateless=True)
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

    >>> place = AgreementStatus(begin=0, floor=30, head=90)
    >>> can_go_on(29, place), can_go_on(28, place)
    (True, False)
    """
    return own + 1 >= shared.floor if own >= 0 else shared.begin == shared.floor == 0


KEPT_BATCHES = 512
KEPT_SECONDS = 600.0
_SLACK_SECONDS = 1.0
"""Of a replica's word about itself, on top of two batches: it says it after each."""

_APART = 1.25
"""Batches from one plan to the next while another replica catches up: batches of the slower of the two,"""
_MOST_APART = 2.0
"""but no more than so many of this one: readers of the output do not wait longer for a slow replica."""


def pause(
    batch: int,
    me: str,
    replica_progress: Mapping[str, ReplicaProgress],
    now: float,
    since_last_plan: float,
    usual: float,
) -> float:
    """Return how many seconds a replica should wait still before it plans a batch.

    ``usual`` is how long a batch usually takes. While a live replica is more than one batch behind, plans are
    a quarter of a batch further apart, so that it catches up; if its batches take longer than ours, a quarter
    of its own, up to two of our batches. A replica that has not reported for two batches, by its pace or
    ours, and a second counts as dead.

    >>> behind = {"count~1": ReplicaProgress("count~1", batch=5, at=99.5)}
    >>> pause(9, "count", behind, now=100.0, since_last_plan=1.0, usual=1.0)
    0.25
    >>> pause(9, "count", behind, now=110.0, since_last_plan=1.25, usual=1.0)
    0.0
    """
    behind = [
        progress.seconds
        for name, progress in replica_progress.items()
        if name != me
        and progress.batch < batch - 2
        and now - progress.at <= 2 * max(usual, progress.seconds) + _SLACK_SECONDS
    ]
    if not behind:
        return 0.0
    apart = min(_MOST_APART * usual, _APART * max(usual, *behind))
    return max(0.0, apart - since_last_plan)


def first_batch_to_keep(
    planned_at: Mapping[int, float], now: float, *, keep: int = KEPT_BATCHES, seconds: float = KEPT_SECONDS
) -> int:
    """Return the first batch that has to be kept, of those that the replica which asks has published itself.

    ``planned_at`` says of these batches when they were planned. At least ``keep`` of them are kept, and all
    that are younger than ``seconds``, so that a replica which was away that long goes on without a copy.

    >>> first_batch_to_keep({batch: float(batch) for batch in range(10)}, now=9.0, keep=2, seconds=5.0)
    4
    >>> first_batch_to_keep({batch: float(batch) for batch in range(10)}, now=99.0, keep=2, seconds=5.0)
    8
    """
    batches = sorted(planned_at)
    if len(batches) <= keep:
        return batches[0] if batches else 0
    floor = batches[-keep] if keep else batches[-1] + 1
    young = (batch for batch in batches if now - planned_at[batch] <= seconds)
    return min(floor, next(young, floor))
