"""Where Java is, its options, and the jars that come with PySpark, which itself is not imported for that."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
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
