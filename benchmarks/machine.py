"""What a reader must know of the machine to judge the figures."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import psutil

PACKAGES = ("pyspark", "pyarrow", "bytewax")


def facts() -> dict[str, str]:
    """Return the facts for the header of the table."""
    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": f"{os.cpu_count()} cores, {platform.machine()}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
