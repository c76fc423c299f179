"""The folder of a log: what is in it, and the file that describes it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from penstock.errors import LogError, LogExistsError, LogNotFoundError, SettingError

STAGING = "staging"
MAX_PARTITIONS = 99_999

_FILE = "log.json"
_FORMAT = "penstock.log"
_VERSION = 1


def partition_folder(number: int) -> str:
    """The name of a partition's folder.

    >>> partition_folder(7)
    'p00007'
    """
    return f"p{number:05d}"


def create(path: Path, partitions: int) -> None:
    """Make the folder of a new log. The description is written last: with it, the log exists."""
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise SettingError(f"a log has 1 to {MAX_PARTITIONS} partitions, not {partitions}")
    if (path / _FILE).exists():
        raise LogExistsError(f"there is a log at {path} already")
    try:
        make_folder(path)
        for name in (STAGING, *map(partition_folder, range(partitions))):
            make_folder(path / name)
    except (FileExistsError, NotADirectoryError) as error:
        raise LogError(f"cannot make a log at {path}: {error.filename} is not a folder") from error
    _write(path, {"format": _FORMAT, "version": _VERSION, "partitions": partitions})


def read(path: Path) -> int:
    """The number of partitions of the log at ``path``."""
    try:
        text = (path / _FILE).read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise LogNotFoundError(
            f"there is no log {path.name!r} at {path}: create it with `penstock log create {path.name}`"
        ) from None
    except UnicodeDecodeError as error:
        raise LogError(f"{path / _FILE} does not describe a log: {error}") from None
    try:
        found = json.loads(text)
        known = found["format"] == _FORMAT
        version, partitions = found["version"], found["partitions"]
    except (ValueError, TypeError, KeyError) as error:
        raise LogError(f"{path / _FILE} does not describe a log: {error}") from None
    if not known or type(partitions) is not int or not 1 <= partitions <= MAX_PARTITIONS:
        raise LogError(f"{path / _FILE} does not describe a log")
    if version != _VERSION:
        raise LogError(
            f"the log at {path} has format version {version!r}; this version of Penstock reads {_VERSION}"
        )
    return partitions


def make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing, for this user alone."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(mode=0o700, exist_ok=True)


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, content: dict[str, object]) -> None:
    written = path / f".{_FILE}.{os.urandom(8).hex()}"
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(content) + "\n")
            file.flush()
            os.fsync(descriptor)
        # A link, unlike a rename, cannot replace the description of a log made at the same moment.
        os.link(written, path / _FILE)
        sync_folder(path)
    except FileExistsError:
        raise LogExistsError(f"there is a log at {path} already") from None
    finally:
        written.unlink()
