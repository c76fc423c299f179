"""Ctrl-C while Spark starts: the program ends at once, and nothing that it has started goes on."""

from __future__ import annotations

from contextlib import suppress

import psutil


def kill_descendants() -> None:
    """Kill all processes that this one has started, and those that they have."""
    found: dict[int, psutil.Process] = {}
    # One that is stopped starts no other: when a look finds nobody new, everybody is known.
    while new := [one for one in psutil.Process().children(recursive=True) if one.pid not in found]:
        for process in new:
            found[process.pid] = process
            with suppress(psutil.NoSuchProcess):
                process.suspend()
    for process in found.values():
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(list(found.values()), timeout=5)
