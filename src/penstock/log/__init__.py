"""The embedded log: append-only, partitioned, checksummed, in a folder.

It imports neither Spark nor Arrow: whoever only looks for a log's folder does not wait for them.
"""

from penstock.log.compaction import Compacted
from penstock.log.durability import Fsync
from penstock.log.log import Log
from penstock.log.places import home, log_folder, log_names
from penstock.log.readers import Reader
from penstock.log.retention import Cut, Retention
from penstock.log.staging import StagedSegment
from penstock.log.stat import LogStat, PartitionStat, ReaderStat
from penstock.log.watch import Watch

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
