"""Programs that run as another user than these tests: what a stranger on the same machine can do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.waiting import DEADLINE

NOBODY = 65534
"""The uid and gid of ``nobody``."""

# The interpreter may be where nobody cannot read: everything that a program needs is loaded before.
_BECOME = """
import __future__, encodings.ascii, encodings.latin_1, json, os, socket, struct, sys
"127.0.0.1".encode("idna")
os.setgroups([])
os.setgid({nobody})
os.setuid({nobody})
assert os.getuid() == os.geteuid() == {nobody}
"""


def run_as_nobody(program: str, *arguments: str) -> str:
    """Run a program in Python as another user, and return what it has printed; skips the test unless root.

    The program may import json, socket, struct and sys.
    """
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can start a process of another user. Run this test as root")
    become = _BECOME.format(nobody=NOBODY)
    code = f"{become}\nexec(compile({program!r}, 'stranger', 'exec'), {{'__name__': '__main__'}})"
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *arguments],
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
