"""Waits of tests. One policy: a deadline only ends a wait that would never end, a promise is measured.

What a test waits for comes at once on an idle machine, and late on a busy one. So no test chooses a deadline
of its own for something that nobody has promised to be quick. Where time itself is promised, ``promised``
measures it without the time for which the machine stood still.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from support.stalls import Stalls

T = TypeVar("T")

DEADLINE = 240.0 * float(os.environ.get("PENSTOCK_TEST_PATIENCE", "1"))
"""Seconds after which a wait of any test is given up."""

_LOOK, _LONGEST_LOOK = 0.02, 0.25
"""Seconds from one look to the next: rarer when it takes long, because looking takes time from who works."""


def eventually(
    what: str,
    condition: Callable[[], T | None],
    *,
    meanwhile: Callable[[], object] = lambda: None,
    every: float = _LOOK,
) -> T:
    """Wait until something is so, and return what was found.

    ``meanwhile`` is called before each look, and raises what makes waiting useless: a process has died, a job
    has failed.
    """
    began = time.monotonic()
    while True:
        meanwhile()
        found = condition()
        if found:
            return found
        passed = time.monotonic() - began
        if passed >= DEADLINE:
            raise AssertionError(f"not within {DEADLINE:.0f} s: {what}; the last look found {found!r}")
        time.sleep(max(every, min(passed / 20, _LONGEST_LOOK)))


def always(what: str, condition: Callable[[], object], seconds: float) -> None:
    """See that something stays so for a time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert condition(), f"not all the time: {what}"
        time.sleep(_LOOK)


def promised(seconds: float, what: str, condition: Callable[[], T | None], folder: Path) -> T:
    """Wait until something is so that is promised to be so in time; return what was found.

    The folder is on the disk whose stalls are not counted.
    """
    began = time.monotonic()
    with Stalls(folder) as stalls:
        while not (found := condition()):
            passed = time.monotonic() - began
            stalled = stalls.seconds
            assert passed - stalled < seconds, (
                f"not within {seconds:.0f} s: {what}, {passed:.1f} s with {stalled:.1f} s of stalls"
            )
            time.sleep(_LOOK)
    return found
