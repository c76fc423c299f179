"""Programs that run as another user than these tests: what a stranger on the same machine can do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.waiting import DEADLINE

NOBODY = 65534
"""The uid and gid of ``nobody``."""


def other_user() -> dict[str, Any]:
    """Return what ``subprocess`` needs to run a program as nobody; skips the test where that is forbidden."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can start a process of another user. Run this test as root")
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def run_as_nobody(program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a program in Python that needs no packages, as another user, and return what it has printed."""
    python = Path(sys.executable).resolve()
    ended = subprocess.run(
        [str(python), "-I", "-S", "-c", program, *arguments],
        cwd="/",
        env={"PATH": os.defpath, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        **other_user(),
    )
    assert ended.returncode == 0, ended.stderr
    return str(ended.stdout)
