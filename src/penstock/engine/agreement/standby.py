"""Primary and backups: backups compute like the primary, and hold what they have until it is needed.

The primary is whoever gave the last batch. A backup gives it time for the next one; when that is over it
brings out what it holds, and is the primary from then on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.engine.agreement.held import drop, is_held, release
from penstock.engine.blueprint import Blueprint

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
