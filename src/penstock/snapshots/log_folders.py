"""The folders of logs that are empty: a snapshot has files only."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.errors import LogError
from penstock.log import description


def make_log_folders(home: Path) -> None:
    """Make the folders that each log of a home must have."""
    logs = home / "logs"
    for name in sorted(os.listdir(logs)) if logs.is_dir() else ():
        try:
            numbers = range(description.read(logs / name).partitions)
        except LogError:
            continue  # It is none, or damaged: who opens it will say so.
        for folder in (description.STAGING, description.READERS, *map(description.partition_folder, numbers)):
            description.make_folder(logs / name / folder)
