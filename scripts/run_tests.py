"""What `make test` and `make test-full` run: lint, then all tests. Says at the end how long it took.

Tests that start nothing are dealt out to two processors one by one; those that start processes by their
files, because a module's cluster serves all its tests. The latter wait for a fifth of their time, for a
session of ZooKeeper to end or for Java to start, so three at a time keep two processors busy.
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
LONGEST = [
    f"tests/fault/test_{name}.py"
    for name in (
        "java_kills",
        "k_safety_changes",
        "cluster_on_spark",
        "k_safety_on_spark",
        "cluster_faults",
        "kept_jobs",
        "cluster_executors",
        "k_safety",
        "local_kills",
        "kill",
    )
]
"""These begin first, so that no processor is left alone with one of them in the end."""
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
        by_file = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
        failed |= run_pytest(folder / "starting.xml", *by_file, *starting(), *chosen, *shown)
        counts = [counted(folder / f"{part}.xml") for part in ("pure", "starting")]
        java = sum(1 for _ in (folder / "java").iterdir())
    over = time.monotonic()
    tests, failures, errors, skipped = map(sum, zip(*counts, strict=True))
    print(
        f"\nmake test{'-full' if full else ''}: {'FAILED' if failed else 'passed'} in {minutes(over - began)}"
        f" (lint {minutes(linted - began)}, pure {minutes(pure - linted)},"
        f" with processes of their own {minutes(over - pure)}):"
        f" {tests} tests, {failures + errors} failed, {skipped} skipped; {java} Spark processes started"
    )
    return int(failed)


def starting() -> list[str]:
    """Return the files of the tests that start processes, in the order in which they begin.

    One by one: of files that are in a folder which is given as well, pytest forgets the order.
    """
    folders = [ROOT / "tests" / "fault", ROOT / "tests" / "integration"]
    found = [str(file.relative_to(ROOT)) for folder in folders for file in sorted(folder.rglob("*.py"))]
    return LONGEST + [name for name in found if name not in (*LONGEST, CONTROL_PLANE)]


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
