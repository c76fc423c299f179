"""Placeholder until the pure pacing is in."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engine.agreement.folder import Standing

KEPT_BATCHES = 512
KEPT_SECONDS = 600.0


def pause(
    batch: int, me: str, standings: Mapping[str, Standing], now: float, since: float, usual: float
) -> float:
    """Return how long to wait still before a batch is proposed."""
    behind = [one for one in standings.values() if one.name != me and batch - one.batch > 2]
    alive = [one for one in behind if now - one.at < 2 * usual + 1.0]
    return max(0.0, 0.5 * usual - since) if alive else 0.0
