"""What `make test` and `make test-full` run: lint and all tests. Says at the end how long it took.

Tests that start processes wait for a part of their time, for a session of ZooKeeper to end or for Java to
start: three files of them at a time leave room on two processors, and there run lint and then the tests that
start nothing. Files are dealt out as a whole, because a module's cluster serves all its tests, and to one
process those that share a Spark session.
"""

# ruff: noqa: T201 - it talks to a person

from __future__ import annotations

import argparse
import os
import signal
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
STARTING = [ROOT / "tests" / "fault", ROOT / "tests" / "integration"]
"""Where the tests are that start processes."""
COUNTED = ("tests", "failures", "errors", "skipped")


def main() -> int:
    """Run everything; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="run the long tests, too")
    full = parser.parse_args().full
    began = time.monotonic()
    # Hundreds of processes start: without its byte code each of them would compile all of Penstock.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="penstock-tests-") as name:
        folder = Path(name)
        java = folder / "java"
        java.mkdir()
        os.environ["PENSTOCK_TEST_JAVA_STARTS"] = str(java)
        done = run_all(folder, full)
        tests, failures, errors, skipped = counted(folder)
        starts = sum(1 for _ in java.iterdir())
    failed = [what for what, code in done.items() if code]
    print(
        f"\nmake test{'-full' if full else ''}: {'FAILED' if failed else 'passed'}"
        f" in {minutes(time.monotonic() - began)}:"
        f" {tests} tests, {failures + errors} failed, {skipped} skipped; {starts} Spark processes started"
        + (f"; failed or given up: {', '.join(failed)}" if failed else "")
    )
    return int(bool(failed))


def run_all(folder: Path, full: bool) -> dict[str, int]:
    """Run lint and all tests, and return the exit code of each part; without lint the tests are given up."""
    chosen = ["--hypothesis-profile=penstock-full"] if full else ["-m", "not full"]
    shown = [] if full else ["--durations=40", "--durations-min=5"]
    by_file = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
    starting, pure = files()
    pytest = [sys.executable, "-m", "pytest", *chosen]
    tests = [*pytest, f"--junit-xml={folder}/starting.xml", *by_file, *starting, *shown]
    beside = subprocess.Popen(tests, cwd=ROOT)
    done = {}
    try:
        for what, command in (
            ("lint", [os.environ.get("MAKE", "make"), "--no-print-directory", "lint"]),
            ("tests that start nothing", [*pytest, f"--junit-xml={folder}/pure.xml", *pure]),
        ):
            print(f"{what}: begun", flush=True)
            output = folder / "output"
            with output.open("wb") as file:
                ended = subprocess.run(command, cwd=ROOT, check=False, stdout=file, stderr=subprocess.STDOUT)
            done[what] = ended.returncode
            said = output.read_text(errors="replace").rstrip()
            print(f"\n{what}: {said if ended.returncode else said.rpartition(chr(10))[2]}", flush=True)
            if what == "lint" and done[what]:
                beside.send_signal(signal.SIGINT)
                break
        done["tests that start processes"] = beside.wait()
    finally:
        if beside.poll() is None:
            beside.send_signal(signal.SIGINT)
            beside.wait()
    return done


def files() -> tuple[list[str], list[str]]:
    """Return the files of tests that start processes, in the order in which they begin, and of all others.

    Each by its name: of files that are in a folder which is given as well, pytest forgets the order.
    """
    starting = [*LONGEST, *(name for folder in STARTING for name in _below(folder))]
    others = [name for folder in (ROOT / "tests", ROOT / "src") for name in _below(folder)]
    return list(dict.fromkeys(starting)), [name for name in others if name not in set(starting)]


def _below(folder: Path) -> list[str]:
    return [str(file.relative_to(ROOT)) for file in sorted(folder.rglob("*.py"))]


def counted(folder: Path) -> tuple[int, ...]:
    """Return how many tests there were, and how they ended."""
    total = [0] * len(COUNTED)
    for report in folder.glob("*.xml"):  # One that was ended early has written none.
        suite = ElementTree.parse(report).getroot().find("testsuite")  # noqa: S314 - written by our own pytest
        if suite is not None:
            total = [count + int(suite.attrib[name]) for count, name in zip(total, COUNTED, strict=True)]
    return tuple(total)


def minutes(seconds: float) -> str:
    """Return a time as people write it.

    >>> minutes(754.6)
    '12:35'
    """
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


if __name__ == "__main__":
    sys.exit(main())
