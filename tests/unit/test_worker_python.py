"""The script that starts Python for Spark's workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "src" / "penstock" / "spark" / "worker_python.sh"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("/s/python/lib/pyspark.zip:/s/python/lib/py4j-0.10.9.9-src.zip:/my code:/b", "/my code:/b"),
        ("/a:/s/python/lib/pyspark.zip", "/a"),
        ("/s/python/lib/pyspark.zip", ""),
        ("/a/pyspark.zip", "/a/pyspark.zip"),
        ("", ""),
    ],
)
def test_it_takes_the_zip_files_of_spark_from_the_path_and_nothing_else(given: str, kept: str) -> None:
    done = subprocess.run(
        [SCRIPT, "-S", "-c", "import os, sys; print(os.environ['PYTHONPATH'], *sys.argv[1:])", "a b", "*"],
        env={**os.environ, "PYTHONPATH": given, "PENSTOCK_WORKER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{kept} a b *\n"
