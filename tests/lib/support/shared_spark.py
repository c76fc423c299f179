"""The one Spark session of a process of tests: started here, and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.running import MASTER


@contextmanager
def spark_session(said: Path) -> Iterator[Path]:
    """Start the session, and keep in a file what Java and its Python workers print of their own."""
    from penstock.spark.spark_session import close_session, open_session

    close_session()  # One that a job has started prints to the terminal.
    real = os.dup(2)
    with said.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        open_session(MASTER, {}, {}, {})
    finally:
        os.dup2(real, 2)
        os.close(real)
    yield said
    close_session()
