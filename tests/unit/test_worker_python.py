"""The script that starts Python for Spark's workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark import spark_session

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


@pytest.mark.parametrize(
    ("given", "master", "chosen"),
    [
        (None, "local[1]", str(SCRIPT)),
        (None, "spark://elsewhere:7077", sys.executable),
        ("/only/on/other/machines/python", "local[1]", sys.executable),
    ],
    ids=["here", "elsewhere", "the user's own"],
)
def test_the_python_that_java_starts_here_is_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, given: str | None, master: str, chosen: str
) -> None:
    for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON", "PENSTOCK_WORKER_PYTHON"):
        monkeypatch.setenv(name, "")  # So that it is as before at the end.
        monkeypatch.delenv(name)
    if given is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", given)
    spark_session._choose_python(master)
    spark_session._choose_driver_python()
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == chosen
    assert os.environ["PYSPARK_PYTHON"] == (given or chosen)
