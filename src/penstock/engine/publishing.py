"""Makes what a batch has given visible in its sinks, and tells its sources how far they have been read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.engine.blueprint import Blueprint
from penstock.errors import connector_call


def publish(blueprint: Blueprint, batch: int, receipts: Mapping[str, list[Any]]) -> None:
    """Make a batch visible in its sinks."""
    for name, sink in blueprint.sinks.items():
        if receipts.get(name):
            # Whoever read our output has gone: that is no trouble of the sink's.
            with connector_call(blueprint.job, name, passing=(BrokenPipeError,)):
                sink.commit(batch, receipts[name])


def discard(blueprint: Blueprint, receipts: Mapping[str, list[Any]]) -> None:
    """Remove what was staged for sinks and will never be visible."""
    for name, sink in blueprint.sinks.items():
        if receipts.get(name):
            with connector_call(blueprint.job, name):
                sink.discard(receipts[name])


def tidy(blueprint: Blueprint) -> None:
    """Let sinks remove what crashes have left; only when nothing waits for any of them."""
    for name, sink in blueprint.sinks.items():
        with connector_call(blueprint.job, name):
            sink.tidy(blueprint.job)


def acknowledge(blueprint: Blueprint, end: Mapping[str, Any]) -> None:
    """Tell the sources how far they have been read for good: up to the end of a batch."""
    for name, source in blueprint.sources.items():
        position = end["sources"].get(name)
        if position is None:  # It has joined after the batch was planned.
            continue
        with connector_call(blueprint.job, name):
            source.committed(position, f"{blueprint.job}.{name}")
