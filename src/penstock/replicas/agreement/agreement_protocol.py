"""The agreement protocol of replicas: their decisions, and the next action of a replica.

Pure, and small enough for a model checker. For each batch the agreement contains at most one plan (what the
batch reads) and at most one commit (whose output counts). Both are created once and never changed. Batches
below ``floor`` are committed, and their plans and commits were removed. A replica takes only the actions
defined here, so a test can try every order of the actions of several replicas, with deaths at any point.
Pacing affects only speed: when a replica that is ahead waits for one behind, and how long plans are kept.
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
    """A replica of a job. All replicas of a job have the same agreement and different names."""

    name: str
    number: int
    agreement: str
    """The folder of the agreement, which all replicas share."""
    generation: int = 1
    """The generation of the code that it runs."""
    holds: bool = False
    """Whether only the primary writes output to the sinks, and backups hold theirs while the primary has
    time."""
    scratch: str = ""
    """A folder on this node for held output."""
    may_differ_until: int = -1
    """The last batch whose result may differ: no replica has the state behind the committed results."""

    @property
    def folder(self) -> Path:
        """The folder of the agreement."""
        return Path(self.agreement)


@dataclass(frozen=True)
class Charter:
    """The start of an agreement: where the job was at that time."""

    begin: int
    """The first batch of the agreement."""
    sources: Mapping[str, Any]
    """The first positions of the sources, for replicas that begin with batch 0."""


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
    """The id of the attempt that made the output. A replica that runs a batch twice makes two attempts."""
    by: str
    """The name of the replica."""
    generation: int
    """The generation of the code that made it."""
    end: Mapping[str, Any]
    receipts: Mapping[str, list[Any]] = field(default_factory=dict)
    """The receipts of sinks that can publish output staged by another process."""
    digests: Mapping[str, int] = field(default_factory=dict)
    """The digest of the output, by sink."""
    state: Mapping[str, int] = field(default_factory=dict)
    """The digest of all changes of state so far, by vertex; only in some batches."""
    at: float = 0.0


@dataclass(frozen=True)
class ReplicaProgress:
    """The progress of a replica, as reported by itself."""

    name: str
    batch: int
    at: float
    seconds: float = 0.0
    """How long its last batch took."""


class BatchAction(Enum):
    """The next action of a replica for a batch."""

    FOLLOW = "follow"
    """Run the batch as planned."""
    PROPOSE = "propose"
    """Propose a plan for the batch; if another replica was faster, run that plan."""
    WAIT = "wait"
    """Do nothing now."""
    COMMIT = "commit"
    """Offer the output of the batch; if another replica was faster, accept that one."""
    ACCEPT = "accept"
    """Drop the own output, because another one is committed."""
    REBUILD = "rebuild"
    """Start again from a snapshot of another replica, because the next plans were removed."""


@dataclass(frozen=True)
class BatchStatus:
    """The decisions about a batch that a replica finds in the agreement."""

    floor: int
    planned: bool = False
    committed: bool = False


def before_batch(batch: int, seen: BatchStatus, *, work: bool, whole: bool = True) -> BatchAction:
    """Return the action of a replica before its next batch.

    ``work`` is true if there is input to plan; ``whole`` is false for a replica whose state lacks the input
    from before it joined, and which therefore must not plan or commit yet.

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
    """Return the action of a replica after it has run a batch.

    ``holds`` is true for a backup while the primary still has time to commit.

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
    """How a replica joins the others."""

    CREATE = "create"
    """Create the agreement."""
    WAIT = "wait"
    """Wait, for example until another replica has created the agreement."""
    BEGIN = "begin"
    """Begin with the first batch, like the others."""
    GO_ON = "continue"
    """Continue after the own last batch."""
    COPY = "copy"
    """Copy the newest snapshot of another replica."""
    SKIP = "skip"
    """Continue after the last committed batch, without any state."""


@dataclass(frozen=True)
class AgreementStatus:
    """The agreement as a joining replica finds it."""

    begin: int
    """The first batch of the agreement."""
    floor: int
    """The first batch that was not removed."""
    head: int
    """The last planned batch; one before ``floor`` if none is planned."""
    done: int = -1
    """The last committed batch; one before ``floor`` if none is committed."""


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
    """Return how a replica joins, and which replica it copies.

    ``own`` and ``others`` are last batches, -1 for none; ``others`` contains only replicas whose state can be
    trusted. A replica that is more than ``far`` batches behind copies another one instead of running all of
    them. A ``stray`` replica, which has diverged, continues from its own state only if it can copy no other.
    A ``stateless`` replica, whose job keeps no state between batches, needs no copy. If the job is ``new``,
    no batch was run before the agreement, and any replica may create it; otherwise only the first replica
    may, because it knows the earlier batches.

    >>> enter(0, -1, None, {})
    (<JoinAction.CREATE: 'create'>, '')
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
            f"a replica has run batch {own}, but the agreement has no batch after {shared.head}: it was"
            " restored from an older copy. Restore its latest version, or start from scratch (--fresh)"
        )
    able = can_go_on(own, shared)
    if able and not stray and shared.head - own <= far:
        return _go_on(own), ""
    # The batch must not have been removed, because its output may have to be published again.
    if stateless and shared.done >= shared.floor and shared.done > own:
        return JoinAction.SKIP, ""
    best = max(sorted(others), key=lambda name: others[name], default="")
    if best and can_go_on(others[best], shared) and (stray or others[best] > own):
        return JoinAction.COPY, best
    return (_go_on(own) if able else JoinAction.WAIT), ""


def _go_on(own: int) -> JoinAction:
    return JoinAction.GO_ON if own >= 0 else JoinAction.BEGIN


def can_go_on(own: int, shared: AgreementStatus) -> bool:
    """Return whether the agreement still has all plans after this last batch of a replica.

    >>> place = AgreementStatus(begin=0, floor=30, head=90)
    >>> can_go_on(29, place), can_go_on(28, place)
    (True, False)
    """
    return own + 1 >= shared.floor if own >= 0 else shared.begin == shared.floor == 0


KEPT_BATCHES = 512
KEPT_SECONDS = 600.0
_SLACK_SECONDS = 1.0
"""Tolerance for the age of a replica's progress report, in addition to two batches; it reports after each."""

_PLAN_INTERVAL = 1.25
"""Time between two plans while another replica catches up, in batches of the slower replica."""
_MAX_PLAN_INTERVAL = 2.0
"""Its limit, in batches of this replica: a slow replica must not delay the output for longer."""


def pause(
    batch: int,
    me: str,
    replica_progress: Mapping[str, ReplicaProgress],
    now: float,
    since_last_plan: float,
    usual: float,
) -> float:
    """Return how many more seconds a replica should wait before it plans a batch.

    ``usual`` is the usual duration of a batch. While a live replica is more than one batch behind, the time
    between plans is a quarter longer, so that it can catch up. If its batches take longer than ours, their
    duration counts, up to two of our batches. A replica counts as dead if it has not reported for two
    batches, by its pace or ours, and a second.

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
    apart = min(_MAX_PLAN_INTERVAL * usual, _PLAN_INTERVAL * max(usual, *behind))
    return max(0.0, apart - since_last_plan)


def first_batch_to_keep(
    planned_at: Mapping[int, float], now: float, *, keep: int = KEPT_BATCHES, seconds: float = KEPT_SECONDS
) -> int:
    """Return the first batch to keep, of those that the calling replica has published itself.

    ``planned_at`` maps these batches to the times of their plans. At least ``keep`` of them are kept, and all
    that are younger than ``seconds``, so that a replica that was away that long can continue without a copy.

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
