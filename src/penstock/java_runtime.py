"""The Java that Spark runs on.

Its path, version and options, the jars of PySpark, and the archive of loaded classes that makes it start
sooner. PySpark is not imported.
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
"""The environment variable with options for the Java of every driver and executor."""


def java_options(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the options that a user has for the Java of drivers and executors. Raises SettingError.

    >>> java_options({"PENSTOCK_JAVA_OPTIONS": "-XX:+UseZGC '-Dplace=a b'"})
    ['-XX:+UseZGC', '-Dplace=a b']
    """
    try:
        return shlex.split(environment.get(JAVA_OPTIONS_VARIABLE, ""))
    except ValueError as error:
        raise SettingError(f"{JAVA_OPTIONS_VARIABLE} cannot be read as a list of options: {error}") from None


def find_java() -> Path:
    """Return the Java that Spark runs on; raises SettingError when there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise SettingError("Spark needs Java 17 or later: install it, or set JAVA_HOME to where it is")
    return Path(java)


def check_java() -> None:
    """Raise SettingError unless there is a Java that Spark can run on."""
    java = find_java()
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = java_version(answer.stderr)
    if version is not None and version < 17:
        raise SettingError(f"Spark needs Java 17 or later, and {java} is version {version}")


def java_version(words: str) -> int | None:
    """Read the major version from what ``java -version`` says.

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
    """Return the folder of the jars that PySpark brings: Spark's, and ZooKeeper's among them."""
    spec = find_spec("pyspark")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places or not (Path(places[0]) / "jars").is_dir():
        raise SettingError("PySpark is not installed with its jars: pip install pyspark")
    return Path(places[0]) / "jars"


_SUFFIX = ".jsa"
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""Silences Java's messages about an archive that it cannot use, which would go to standard output."""


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
