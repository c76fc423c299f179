"""``penstock prepare``: an archive of Spark's classes that drivers use, and can do without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.errors import SettingError
from penstock.spark.warm_start import prepare
from support.waiting import DEADLINE

_MAPS = """
import sys
from pathlib import Path
from penstock.spark.spark_session import open_session
from pyspark import SparkContext
session = open_session("local[1]")
assert session.range(3).count() == 3
mapped = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text().split()
print([word for word in mapped if word.endswith(".jsa")])
"""


@pytest.fixture(scope="module")
def archive() -> Path:
    command = [str(Path(sys.executable).with_name("penstock")), "prepare", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE)
    return Path(json.loads(done.stdout)["archive"])


def archives_that_spark_uses(options: str) -> str:
    """Start a session, let it do something, and return the archives that its Java has mapped."""
    done = subprocess.run(
        [sys.executable, "-c", _MAPS],
        env={**os.environ, "PENSTOCK_JAVA_OPTIONS": f"{os.environ['PENSTOCK_JAVA_OPTIONS']} {options}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_spark_starts_from_the_archive(archive: Path, spark_says: Path) -> None:
    from pyspark import SparkContext

    assert archive.is_file()
    gateway: Any = SparkContext._gateway
    java = psutil.Process(gateway.proc.pid)
    if java.create_time() < archive.stat().st_mtime:
        pytest.skip("there was no archive when the tests started Spark: `make prepare` makes it")
    assert str(archive) in {mapped.path for mapped in java.memory_maps()}


@pytest.mark.full
def test_a_damaged_archive_keeps_nothing_from_starting(archive: Path, tmp_path: Path) -> None:
    content = bytearray(archive.read_bytes())
    for place in range(len(content) // 5, len(content) // 2, 997):
        content[place] ^= 0x55
    damaged = tmp_path / "damaged.jsa"
    damaged.write_bytes(content)
    assert str(damaged) not in archives_that_spark_uses(f"-XX:SharedArchiveFile={damaged}")


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="cannot be written"):
        prepare(tmp_path / "file" / "archives")
