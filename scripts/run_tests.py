"""What `make test` and `make test-full` run: lint, then all tests. Says at the end how long it took.

They are dealt out by their files, because a module's cluster serves all its tests, and to one process those
that share a Spark session. Tests that start processes wait for a part of their time, for a session of
ZooKeeper to end or for Java to start, so three files at a time keep two processors busy.
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
LONGEST = [
    f"tests/{folder}/test_{name}.py"
    for folder, name in (
        ("fault", "java_kills"),
        ("integration", "incomplete_results"),  # With it all that share a Spark session.
        ("fault", "k_safety_changes"),
        ("fault", "cluster_on_spark"),
        ("fault", "k_safety_on_spark"),
        ("fault", "cluster_faults"),
        ("fault", "kept_jobs"),
        ("fault", "cluster_executors"),
        ("fault", "k_safety"),
        ("fault", "local_kills"),
        ("fault", "cluster_changes"),
        ("integration", "documents"),
        ("fault", "cluster_failures"),
        ("fault", "kill"),
        ("fault", "livelocks"),
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
    # Hundreds of processes start: without its byte code each of them would compile all of Penstock.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    lint = [os.environ.get("MAKE", "make"), "--no-print-directory", "lint"]
    if subprocess.run(lint, cwd=ROOT, check=False).returncode:
        return 1
    linted = time.monotonic()
    chosen = ["--hypothesis-profile=penstock-full"] if full else ["-m", "not full"]
    shown = [] if full else ["--durations=40", "--durations-min=5"]
    by_file = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
    with tempfile.TemporaryDirectory(prefix="penstock-tests-") as name:
        report, java = Path(name) / "report.xml", Path(name) / "java"
        java.mkdir()
        os.environ["PENSTOCK_TEST_JAVA_STARTS"] = str(java)
        pytest = [sys.executable, "-m", "pytest", f"--junit-xml={report}"]
        done = subprocess.run([*pytest, *by_file, *files(), *chosen, *shown], cwd=ROOT, check=False)
        failed = done.returncode != 0
        tests, failures, errors, skipped = counted(report)
        starts = sum(1 for _ in java.iterdir())
    over = time.monotonic()
    print(
        f"\nmake test{'-full' if full else ''}: {'FAILED' if failed else 'passed'} in {minutes(over - began)}"
        f" (lint {minutes(linted - began)}, tests {minutes(over - linted)}):"
        f" {tests} tests, {failures + errors} failed, {skipped} skipped; {starts} Spark processes started"
    )
    return int(failed)


def files() -> list[str]:
    """Return the files of all tests in the order in which they begin: those that start nothing are the last.

    Each by its name: of files that are in a folder which is given as well, pytest forgets the order.
    """
    folders = [ROOT / "tests" / "fault", ROOT / "tests" / "integration", ROOT / "tests", ROOT / "src"]
    found = [str(file.relative_to(ROOT)) for folder in folders for file in sorted(folder.rglob("*.py"))]
    return list(dict.fromkeys(LONGEST + found))


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
