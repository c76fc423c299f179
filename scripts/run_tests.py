"""What `make test` and `make test-full` run: lint, then all tests. Says at the end how long it took.

Tests that start nothing run side by side, on two processors. Those that start processes run one after
another: they would take each other's time, and be late.
"""

# ruff: noqa: T201 - it talks to a person

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
CONTROL_PLANE = "tests/fault/test_control_plane.py"
"""A simulation: it starts nothing."""
PURE = ["src", "tests/unit", "tests/property", CONTROL_PLANE]
STARTING = ["tests/fault", "tests/integration", f"--ignore={CONTROL_PLANE}"]
COUNTED = ("tests", "failures", "errors", "skipped")


def main() -> int:
    """Run everything; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="run the long tests, too")
    full = parser.parse_args().full
    began = time.monotonic()
    lint = [os.environ.get("MAKE", "make"), "--no-print-directory", "lint"]
    if subprocess.run(lint, cwd=ROOT, check=False).returncode:
        return 1
    linted = time.monotonic()
    chosen = [] if full else ["-m", "not full"]
    with tempfile.TemporaryDirectory(prefix="penstock-tests-") as name:
        folder = Path(name)
        (folder / "java").mkdir()
        os.environ["PENSTOCK_TEST_JAVA_STARTS"] = str(folder / "java")
        failed = run_pytest(folder / "pure.xml", "-n", "2", "--dist", "worksteal", *PURE, *chosen)
        pure = time.monotonic()
        shown = [] if full else ["--durations=40", "--durations-min=5"]
        failed |= run_pytest(folder / "starting.xml", *STARTING, *chosen, *shown)
        counts = [counted(folder / f"{part}.xml") for part in ("pure", "starting")]
        java = sum(1 for _ in (folder / "java").iterdir())
    over = time.monotonic()
    tests, failures, errors, skipped = map(sum, zip(*counts, strict=True))
    print(
        f"\nmake test{'-full' if full else ''}: {'FAILED' if failed else 'passed'} in {minutes(over - began)}"
        f" (lint {minutes(linted - began)}, side by side {minutes(pure - linted)},"
        f" one after another {minutes(over - pure)}):"
        f" {tests} tests, {failures + errors} failed, {skipped} skipped; {java} Spark processes started"
    )
    return int(failed)


def run_pytest(report: Path, *arguments: str) -> bool:
    """Run tests; say whether any failed."""
    command = [sys.executable, "-m", "pytest", f"--junit-xml={report}", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode != 0


def counted(report: Path) -> tuple[int, ...]:
    """Return how many tests there were, and how they ended."""
    if not report.exists():  # It was ended before it wrote one.
        return (0,) * len(COUNTED)
    suite = ElementTree.parse(report).getroot().find("testsuite")  # noqa: S314 - written by our own pytest
    return tuple(int(suite.attrib[name]) for name in COUNTED) if suite is not None else (0,) * len(COUNTED)


def minutes(seconds: float) -> str:
    """Return a time as people write it.

    >>> minutes(754.6)
    '12:35'
    """
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


if __name__ == "__main__":
    sys.exit(main())
