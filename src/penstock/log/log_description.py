"""The folder of a log: where it is, its layout, the file that describes it, and the levels of fsync."""

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
    """The folder of the log called ``name`` below ``root``, which is ``home()`` unless given.

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
    """The names of the logs below ``root``, which is ``home()`` unless given, in order."""
    folder = (home() if root is None else local_path("root", root)) / "logs"
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    return [name for name in names if _NAME.fullmatch(name) and (folder / name / "log.json").exists()]


Fsync = Literal["none", "segment", "full"]
"""``none`` leaves the writing to the operating system. With ``segment`` the disk has a segment's bytes
before anybody can see it; with ``full`` it has their names too before the append returns, so that what was
acknowledged survives a power cut."""

LEVELS: tuple[Fsync, ...] = get_args(Fsync)


def read_fsync(level: object) -> Fsync:
    """Check the name of a level.

    >>> read_fsync("segment")
    'segment'
    """
    for known in LEVELS:
        if level == known:
            return known
    raise SettingError(f"{level!r} is not a level of fsync: choose {', '.join(LEVELS)}")


STAGING = "staging"
READERS = "readers"
LOCK = ".lock"
MAX_PARTITIONS = 99_999

FILE = "log.json"
_FORMAT = "penstock.log"
# Version 1 has neither id nor settings, and its producers know no lock: see upgrade.
OLD, _VERSION = 1, 2


@dataclass(frozen=True)
class Description:
    """What a log says of itself."""

    partitions: int
    id: str | None
    """32 random hex digits that no other log has; None in a log of the first format."""
    fsync: Fsync
    retention: Retention

    @property
    def version(self) -> int:
        return OLD if self.id is None else _VERSION


def partition_folder(number: int) -> str:
    """The name of a partition's folder.

    >>> partition_folder(7)
    'p00007'
    """
    return f"p{number:05d}"


def create(path: Path, partitions: int, fsync: Fsync, retention: Retention) -> None:
    """Make the folder of a new log. The description is written last: with it, the log exists."""
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise SettingError(f"a log has 1 to {MAX_PARTITIONS} partitions, not {partitions}")
    if (path / FILE).exists():
        raise LogExistsError(f"there is a log at {path} already")
    try:
        make_folder(path)
        for name in (STAGING, READERS, *map(partition_folder, range(partitions))):
            make_folder(path / name)
    except (FileExistsError, NotADirectoryError) as error:
        raise LogError(f"cannot make a log at {path}: {error.filename} is not a folder") from error
    written = _write(path, Description(partitions, os.urandom(16).hex(), fsync, retention))
    try:
        # A link, unlike a rename, cannot replace the description of a log made at the same moment.
        os.link(written, path / FILE)
    except FileExistsError:
        raise LogExistsError(f"there is a log at {path} already") from None
    finally:
        written.unlink()
    sync(path)
    sync(path.parent)


def read(path: Path) -> Description:
    """The description of the log at ``path``."""
    try:
        text = (path / FILE).read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise LogNotFoundError(
            f"there is no log {path.name!r} at {path}: create it with `penstock log create {path.name}`"
        ) from None
    except UnicodeDecodeError as error:
        raise LogError(f"{path / FILE} does not describe a log: {error}") from None
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
        raise LogError(f"{path / FILE} does not describe a log: {error}") from None


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
    """Replace what a log keeps."""
    changed = replace(_with_id(read(path)), retention=retention)
    _replace(path, changed)
    return changed


def upgrade(path: Path) -> None:
    """Give a log of the first format an id and the second format, before its first segment is taken away.

    A Penstock that does not know the lock cannot open it any more: it would append to freed names.
    """
    found = read(path)
    if found.version == OLD:
        _replace(path, _with_id(found))


def stamp(path: Path) -> tuple[int, int]:
    """Something that differs when the description was replaced."""
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
