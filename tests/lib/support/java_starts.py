"""Counts the Spark processes that a run of the tests starts, drivers and executors, in whatever process.

Each of them has the options of ``PENSTOCK_JAVA_OPTIONS``, and one of these makes it leave a file.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MOST = 40
"""How many ``make test`` may start: each takes ten seconds of both processors."""

_FOLDER = "PENSTOCK_TEST_JAVA_STARTS"
_OPTIONS = "PENSTOCK_JAVA_OPTIONS"
# A Spark of a test lives for seconds: Java's second compiler would take more time than it saves.
_QUICK = "-XX:TieredStopAtLevel=1"


def begin() -> None:
    """Count from now on, in this process and all that it starts.

    Who has started this process may count already, or want several runs to count together.
    """
    folder = os.environ.get(_FOLDER) or tempfile.mkdtemp(prefix="penstock-java-starts-")
    os.environ[_FOLDER] = folder
    options = os.environ.get(_OPTIONS, _QUICK)
    if folder not in options:  # Else a process that counts has set them.
        os.environ[_OPTIONS] = f"{options} -Xlog:gc=error:file={folder}/%p-%t.log"


def count() -> int:
    """Return how many were started so far."""
    return sum(1 for _ in Path(os.environ[_FOLDER]).iterdir())
