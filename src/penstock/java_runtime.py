"""The Java installation that Spark runs on.

Finds its path, version and options, the jars of PySpark, and the class data sharing archive that shortens its
start. PySpark is not imported.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import SettingError

JAVA_OPTIONS_VARIABLE = "PENSTOCK_JAVA_OPTIONS"
"""The environment variable with Java options for every driver and executor."""


def java_options(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the user's Java options for drivers and executors; raises SettingError if they are malformed.

    >>> java_options({"PENSTOCK_JAVA_OPTIONS": "-XX:+UseZGC '-Dplace=a b'"})
    ['-XX:+UseZGC', '-Dplace=a b']
    """
    try:
        return shlex.split(environment.get(JAVA_OPTIONS_VARIABLE, ""))
    except ValueError as error:
        raise SettingError(f"{JAVA_OPTIONS_VARIABLE} cannot be read as a list of options: {error}") from None


def find_java() -> Path:
    """Return the path of the Java that Spark runs on; raises SettingError if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise SettingError("Spark needs Java 17 or later: install it, or set JAVA_HOME to where it is")
    return Path(java)


def check_java() -> None:
    """Raise SettingError unless a Java is installed that Spark can run on."""
    java = find_java()
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = java_version(answer.stderr)
    if version is not None and version < 17:
        raise SettingError(f"Spark needs Java 17 or later, and {java} is version {version}")


def java_version(words: str) -> int | None:
    """Return the major version from the output of ``java -version``; None if it cannot be read.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_392"')
    (17, 8)
    """
    _, quote, rest = words.partition('"')
    numbers = rest.partition('"')[0].replace("-", ".").split(".")
    if not quote or not numbers[0].isdigit():
        return None
    major = int(numbers[0])
    return int(numbers[1]) if major == 1 and len(numbers) > 1 and numbers[1].isdigit() else major


def spark_jars() -> Path:
    """Return the folder of PySpark's jars, which include ZooKeeper's."""
    spec = find_spec("pyspark")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places or not (Path(places[0]) / "jars").is_dir():
        raise SettingError("PySpark is not installed with its jars: pip install pyspark")
    return Path(places[0]) / "jars"


_SUFFIX = ".jsa"
_QUIET_OPTIONS = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""Silences Java's messages about an unusable archive, which would go to standard output."""


def archive_folder() -> Path:
    """Return the folder of archives. It is part of the Python environment, as the jars are."""
    return Path(sys.prefix) / "share" / "penstock"


def archive_name(size: int) -> str:
    """Return the file name of an archive of ``size`` bytes for this Java and these jars."""
    return f"spark-classes-{_fingerprint(find_java(), spark_jars())}-{size}{_SUFFIX}"


def find_archive(folder: Path) -> Path | None:
    """Return the archive for this Java and these jars; None if there is none. May raise SettingError."""
    return next((path for path, useful in _archives(folder) if useful), None)


def remove_unusable(folder: Path) -> None:
    """Remove truncated archives and those for other jars or another Java."""
    for path, useful in _archives(folder):
        if not useful:
            path.unlink(missing_ok=True)


def _archives(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the archives of a folder, each with whether Java can use it.

    A truncated archive must not be used: Java crashes when it maps the missing part.
    """
    for path in sorted(folder.glob(f"spark-classes-*{_SUFFIX}")):
        with suppress(FileNotFoundError):  # Another process may remove archives, too.
            yield path, path.name == archive_name(path.stat().st_size)


def archive_options(folder: Path | None = None) -> list[str]:
    """Return the options that make Java use the archive; none if there is no archive."""
    path = find_archive(folder or archive_folder())
    # Verification takes Java 50 ms; it ignores a damaged archive.
    return [f"-XX:SharedArchiveFile={path}", "-XX:+VerifySharedSpaces", *_QUIET_OPTIONS] if path else []


def recording_options(path: Path) -> list[str]:
    """Return the options that make Java write its loaded classes to an archive when it exits."""
    return [f"-XX:ArchiveClassesAtExit={path}", *_QUIET_OPTIONS]


@cache
def _fingerprint(java: Path, jars: Path) -> str:
    """Return a fingerprint of a Java and a set of jars."""
    program = java.resolve()
    parts = [program, program.parents[1] / "release", *sorted(jars.iterdir())]
    known = [(str(part), part.stat().st_size, part.stat().st_mtime_ns) for part in parts if part.exists()]
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]
