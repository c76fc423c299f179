"""When a replica at the head waits for one that is behind, and when agreements can be forgotten. Pure.

Replicas never need each other, so nothing here is about being right: a replica that always waits a little
less than it should costs another one some catching up, and one that forgets early costs it a copy.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engine.agreement.folder import ReplicaProgress

KEPT_BATCHES = 512
KEPT_SECONDS = 600.0
_SLACK_SECONDS = 1.0
"""Of a replica's word about itself, on top of two batches: it says it after each."""

_APART = 1.25
"""Batches from one plan to the next while another replica catches up."""


def pause(
    batch: int,
    me: str,
    replica_progress: Mapping[str, ReplicaProgress],
    now: float,
    since_last_plan: float,
    usual: float,
) -> float:
    """Return how many seconds a replica should wait still before it plans a batch.

    ``usual`` is how long a batch takes usually. While one that lives is more than one batch behind, batches
    are planned a quarter of that further apart, so that it gains on others; one that has not been heard of
    for two batches, by its pace or ours, and a second is taken for dead. So nobody who reads the output waits
    for two batches.

    >>> behind = {"count~1": Standing("count~1", batch=5, at=99.5)}
    >>> pause(9, "count", behind, now=100.0, since_last_plan=1.0, usual=1.0)
    0.25
    >>> pause(9, "count", behind, now=110.0, since_last_plan=1.25, usual=1.0)
    0.0
    """
    behind = any(
        standing.batch < batch - 2 and now - standing.at <= 2 * max(usual, standing.seconds) + _SLACK_SECONDS
        for name, standing in replica_progress.items()
        if name != me
    )
    return max(0.0, _APART * usual - since_last_plan) if behind else 0.0


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
