"""An archive of the classes that Spark loads, made once for a machine: Java maps it and starts sooner.

It belongs to one Java and one set of jars, which its name tells. Java itself looks whether it fits and is
whole and, if not, loads classes as ever. Who can write where it is could replace the jars just as well.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from penstock.java import find_java, spark_jars

_SUFFIX = ".jsa"
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""What Java has to say of an archive that does not fit is for nobody: it goes to standard output."""


def archive_folder() -> Path:
    """Return the folder of archives: of this Python environment, as the jars are."""
    return Path(sys.prefix) / "share" / "penstock"


def archive_name(size: int) -> str:
    """Return the name of an archive of so many bytes for this Java and these jars. Raises SettingError."""
    return f"spark-classes-{_fingerprint(find_java(), spark_jars())}-{size}{_SUFFIX}"


def find_archive(folder: Path) -> Path | None:
    """Return the archive for this Java and these jars, if there is one. Raises SettingError."""
    return next((path for path, useful in _known(folder) if useful), None)


def remove_useless(folder: Path) -> None:
    """Remove archives for other jars, for another Java, and those that are not whole."""
    for path, useful in _known(folder):
        if not useful:
            path.unlink(missing_ok=True)


def _known(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Go through the archives of a folder and say of each whether Java can use it now.

    One that is not as long as it says is of no use: Java would end when it maps what is not there.
    """
    for path in sorted(folder.glob(f"spark-classes-*{_SUFFIX}")):
        with suppress(FileNotFoundError):  # Others may remove archives, too.
            yield path, path.name == archive_name(path.stat().st_size)


def archive_options(folder: Path | None = None) -> list[str]:
    """Return the options that have Java use the archive; none where there is no archive."""
    path = find_archive(folder or archive_folder())
    # Looking through all of it takes Java 50 ms, and one that is damaged is not used then.
    return [f"-XX:SharedArchiveFile={path}", "-XX:+VerifySharedSpaces", *_QUIET] if path else []


def recording_options(path: Path) -> list[str]:
    """Return the options that have Java write all classes that it has loaded to an archive as it ends."""
    return [f"-XX:ArchiveClassesAtExit={path}", *_QUIET]


@cache
def _fingerprint(java: Path, jars: Path) -> str:
    """Return what differs for each Java and each set of jars."""
    program = java.resolve()
    parts = [program, program.parents[1] / "release", *sorted(jars.iterdir())]
    known = [(str(part), part.stat().st_size, part.stat().st_mtime_ns) for part in parts if part.exists()]
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]
