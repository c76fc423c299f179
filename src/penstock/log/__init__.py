"""The embedded log: append-only, partitioned, checksummed, in a folder.

It imports neither Spark nor Arrow: whoever only looks for a log's folder does not wait for them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.log.compaction import Compacted
    from penstock.log.durability import Fsync
    from penstock.log.log import Log
    from penstock.log.places import home, log_folder, log_names
    from penstock.log.readers import Reader
    from penstock.log.retention import Cut, Retention
    from penstock.log.staging import StagedSegment
    from penstock.log.stat import LogStat, PartitionStat, ReaderStat
    from penstock.log.watch import Watch

_LAZY = {
    "Compacted": "penstock.log.compaction",
    "Cut": "penstock.log.retention",
    "Fsync": "penstock.log.durability",
    "Log": "penstock.log.log",
    "LogStat": "penstock.log.stat",
    "PartitionStat": "penstock.log.stat",
    "Reader": "penstock.log.readers",
    "ReaderStat": "penstock.log.stat",
    "Retention": "penstock.log.retention",
    "StagedSegment": "penstock.log.staging",
    "Watch": "penstock.log.watch",
    "home": "penstock.log.places",
    "log_folder": "penstock.log.places",
    "log_names": "penstock.log.places",
}
"""Where a name comes from. Most processes of a cluster want the home folder alone."""


if not TYPE_CHECKING:  # Type checkers would take any name for one of these.

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'penstock.log' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_LAZY[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Compacted",
    "Cut",
    "Fsync",
    "Log",
    "LogStat",
    "PartitionStat",
    "Reader",
    "ReaderStat",
    "Retention",
    "StagedSegment",
    "Watch",
    "home",
    "log_folder",
    "log_names",
]
