"""``penstock`` as a process whose jobs run without Spark: ``python -m support.local_penstock run FILE``.

``python -m support.local_penstock FILE.py`` runs a program so.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from penstock.cli import main
from penstock.spark import spark_runtime as on_spark
from support.engines import SPARK
from support.running import start_without_spark


def command(engine: str) -> list[str]:
    """Return the command that is ``penstock`` with Spark or without."""
    module = "penstock.cli.main" if engine == SPARK else "support.local_penstock"
    return [sys.executable, "-m", module]


def environment() -> dict[str, str]:
    """Return the environment of this process for one that runs such a command."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


def run() -> None:
    """Do what the arguments of this process say."""
    on_spark.start = start_without_spark
    if sys.argv[1].endswith(".py"):
        runpy.run_path(sys.argv[1], run_name="__main__")
    else:
        main.run()


if __name__ == "__main__":
    run()
