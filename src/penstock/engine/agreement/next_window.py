"""When a replica that came in without state has seen every window that is open from its start on."""

from __future__ import annotations

from penstock.engine.blueprint import Blueprint
from penstock.engine.clock import Times


def is_whole(blueprint: Blueprint, joined: Times, now: Times) -> bool:
    """Whether all windows are closed that were open when a replica came in."""
    return not blueprint.plan.needs_exchange and joined.now <= now.now
