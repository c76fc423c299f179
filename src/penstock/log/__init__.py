"""The embedded log: append-only, partitioned, checksummed, in a folder.

It imports neither Spark nor Arrow: whoever only looks for a log's folder does not wait for them.
"""

from penstock.log.log import Log
from penstock.log.places import home, log_folder
from penstock.log.staging import StagedSegment
from penstock.log.stat import LogStat, PartitionStat
from penstock.log.watch import Watch

__all__ = ["Log", "LogStat", "PartitionStat", "StagedSegment", "Watch", "home", "log_folder"]
