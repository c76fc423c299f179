"""The folder of a log: its location and layout, its description file, and the fsync levels."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from penstock.errors import LogError, LogExistsError, LogNotFoundError, SettingError
from penstock.local_files import home, local_path, make_folder, sync
from penstock.log.retention import Retention

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def log_folder(name: str, root: str | Path | None = None) -> Path:
    """Return the folder of the log ``name`` below ``root``, by default ``home()``.

    >>> log_folder("orders", root="/data").as_posix()
    '/data/logs/orders'
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or ".." in name:
        raise SettingError(
            f"{name!r} cannot name a log: use 1 to 200 letters, digits, '.', '_' or '-', "
            "beginning with a letter or digit and without '..'"
        )
    return (home() if root is None else local_path("root", root)) / "logs" / name


def log_names(root: str | Path | None = None) -> list[str]:
    """Return the names of the logs below ``root``, by default ``home()``, sorted."""
    folder = (home() if root is None else local_path("root", root)) / "logs"
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    return [name for name in names if _NAME.fullmatch(name) and (folder / name / "log.json").exists()]


Fsync = Literal["none", "segment", "full"]
"""``none`` leaves flushing to the operating system. ``segment`` flushes a segment's bytes to disk before the
segment becomes visible. ``full`` also flushes the partition's folder before the append returns, so that
acknowledged records survive a power cut."""

LEVELS: tuple[Fsync, ...] = get_args(Fsync)


def read_fsync(level: object) -> Fsync:
    """Check the name of an fsync level and return it.

    >>> read_fsync("segment")
    'segment'
    """
    for known in LEVELS:
        if level == known:
            return known
    raise SettingError(f"{level!r} is not an fsync level: choose {', '.join(LEVELS)}")


STAGING = "staging"
READERS = "readers"
LOCK = ".lock"
MAX_PARTITIONS = 99_999

FILE = "log.json"
_FORMAT = "penstock.log"
# Version 1 has neither id nor settings, and its producers do not take the partition lock: see upgrade.
OLD, _VERSION = 1, 2


@dataclass(frozen=True)
class Description:
    """The content of a log's description file."""

    partitions: int
    id: str | None
    """32 random hex digits that identify the log; None in a log of format version 1."""
    fsync: Fsync
    retention: Retention

    @property
    def version(self) -> int:
        return OLD if self.id is None else _VERSION


def partition_folder(number: int) -> str:
    """Return the name of a partition's folder.

    >>> partition_folder(7)
    'p00007'
    """
    return f"p{number:05d}"


def create(path: Path, partitions: int, fsync: Fsync, retention: Retention) -> None:
    """Create the folder of a new log. Its description is written last; from then on the log exists."""
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise SettingError(f"a log has 1 to {MAX_PARTITIONS} partitions, not {partitions}")
    if (path / FILE).exists():
        raise LogExistsError(f"there is already a log at {path}")
    try:
        make_folder(path)
        for name in (STAGING, READERS, *map(partition_folder, range(partitions))):
            make_folder(path / name)
    except (FileExistsError, NotADirectoryError) as error:
        raise LogError(f"cannot create a log at {path}: {error.filename} is not a folder") from error
    written = _write(path, Description(partitions, os.urandom(16).hex(), fsync, retention))
    try:
        # Unlike a rename, a link cannot replace the description of a log created at the same moment.
        os.link(written, path / FILE)
    except FileExistsError:
        raise LogExistsError(f"there is already a log at {path}") from None
    finally:
        written.unlink()
    sync(path)
    sync(path.parent)


def read(path: Path) -> Description:
    """Return the description of the log at ``path``."""
    try:
        text = (path / FILE).read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise LogNotFoundError(
            f"there is no log {path.name!r} at {path}: create it with `penstock log create {path.name}`"
        ) from None
    except UnicodeDecodeError as error:
        raise LogError(f"{path / FILE} is not a valid log description: {error}") from None
    try:
        found = json.loads(text)
        if found["format"] != _FORMAT:
            raise ValueError(f"its format is {found['format']!r}")
        version = found["version"]
        if version not in (OLD, _VERSION):
            raise LogError(
                f"the log at {path} has format version {version!r}; this version of Penstock reads"
                f" {OLD} and {_VERSION}"
            )
        return _parse(found)
    except (ValueError, TypeError, KeyError, SettingError) as error:
        raise LogError(f"{path / FILE} is not a valid log description: {error}") from None


def _parse(found: dict[str, Any]) -> Description:
    partitions = found["partitions"]
    if type(partitions) is not int or not 1 <= partitions <= MAX_PARTITIONS:
        raise ValueError(f"it has {partitions!r} partitions")
    if found["version"] == OLD:
        return Description(partitions, None, "none", Retention())
    if len(bytes.fromhex(found["id"])) != 16:
        raise ValueError("its id is not 32 hex digits")
    return Description(partitions, found["id"], read_fsync(found["fsync"]), Retention(**found["retention"]))


def change(path: Path, retention: Retention) -> Description:
    """Replace the retention settings of a log and return its new description."""
    changed = replace(_with_id(read(path)), retention=retention)
    _replace(path, changed)
    return changed


def upgrade(path: Path) -> None:
    """Convert a log of format version 1 to version 2, before its first segment is removed.

    Penstock versions that do not take the partition lock refuse version 2. They would otherwise append under
    the names of removed segments.
    """
    found = read(path)
    if found.version == OLD:
        _replace(path, _with_id(found))


def stamp(path: Path) -> tuple[int, int]:
    """Return a value that changes whenever the description file is replaced."""
    try:
        status = (path / FILE).stat()
    except (FileNotFoundError, NotADirectoryError):
        return (0, 0)
    return status.st_ino, status.st_mtime_ns


def _with_id(found: Description) -> Description:
    return found if found.id is not None else replace(found, id=os.urandom(16).hex())


def _replace(path: Path, description: Description) -> None:
    written = _write(path, description)
    try:
        written.replace(path / FILE)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    sync(path)


def _write(path: Path, description: Description) -> Path:
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "partitions": description.partitions,
        "id": description.id,
        "fsync": description.fsync,
        "retention": asdict(description.retention),
    }
    written = path / f".{FILE}.{os.urandom(8).hex()}"
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(content) + "\n")
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    return written
