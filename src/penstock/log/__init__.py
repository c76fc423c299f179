"""The embedded log: append-only, partitioned, checksummed, in a folder.

Names are imported on first use, so that code which only needs a log's folder does not load Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.local_files import home
    from penstock.log.folder_watch import Watch
    from penstock.log.log import Log
    from penstock.log.log_description import Fsync, log_folder, log_names
    from penstock.log.log_stat import LogStat, PartitionStat, ReaderStat
    from penstock.log.maintenance import Compacted
    from penstock.log.reader_positions import Reader
    from penstock.log.retention import Cut, Retention
    from penstock.log.segment_staging import StagedSegment

_LAZY = {
    "Compacted": "penstock.log.maintenance",
    "Cut": "penstock.log.retention",
    "Fsync": "penstock.log.log_description",
    "Log": "penstock.log.log",
    "LogStat": "penstock.log.log_stat",
    "PartitionStat": "penstock.log.log_stat",
    "Reader": "penstock.log.reader_positions",
    "ReaderStat": "penstock.log.log_stat",
    "Retention": "penstock.log.retention",
    "StagedSegment": "penstock.log.segment_staging",
    "Watch": "penstock.log.folder_watch",
    "home": "penstock.local_files",
    "log_folder": "penstock.log.log_description",
    "log_names": "penstock.log.log_description",
}
"""The module that defines each name. Most processes of a cluster only use ``home``."""


if not TYPE_CHECKING:  # With a module __getattr__, type checkers would accept any name.

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
