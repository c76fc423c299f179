"""kill -9 of Java alone, at random moments: Python sees a result that has ended, and must not believe it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from java_kill_job import BATCH, KEYS, ROUNDS, folders_of
from killing import read

from penstock.engine.storage.ledger import Ledger
from penstock.log import Log, log_folder
from penstock.record import Record
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import Charter
from support.waiting import eventually

PROGRAM = Path(__file__).with_name("java_kill_job.py")
AHEAD = 4 * BATCH
MAIN = "org.apache.spark.deploy.SparkSubmit"


class Feed:
    """Appends numbers to the jobs' input: there is always a batch to run, and never much more than that."""

    def __init__(self, home: Path, jobs: Sequence[str]) -> None:
        self.count = 0
        self._home = home
        self._folders = [folder for name in jobs for folder in folders_of(name)]
        self._log = Log.create(log_folder("in", home), partitions=2)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            if self.count - reached(self._home, self._folders) > AHEAD:
                continue
            numbers = range(self.count, self.count + BATCH // 4)
            self._log.append([Record(None, {"n": n}) for n in numbers])
            self.count += len(numbers)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def running(home: Path, jobs: Sequence[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the jobs in a process that is gone at the end, whatever happens, with all that it has started."""
    with output.open("wb") as file:
        environment = {**os.environ, "PENSTOCK_HOME": str(home)}
        command = [sys.executable, str(PROGRAM), *jobs]
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        process.wait()


def java_of(process: subprocess.Popen[bytes], *, but: int) -> psutil.Process | None:
    """Return the Java of a process, unless it is the one that was killed."""
    for child in psutil.Process(process.pid).children():
        # Another Java, which works out how to start this one, comes and goes before.
        with suppress(psutil.Error):
            if child.pid != but and MAIN in child.cmdline():
                return child
    return None


def batches(home: Path) -> int:
    """Return how many batches of all jobs have happened, as their files tell."""
    newest = 0
    for ledger in (home / "jobs").glob("*/ledger"):
        newest += max((int(path.name[:-5]) + 1 for path in ledger.glob("*.json")), default=0)
    return newest


def _reached(home: Path, goal: int) -> bool:
    return batches(home) >= goal


def reached(home: Path, folders: Sequence[str]) -> int:
    """Return how many numbers the slowest of the jobs has read; 0 as long as one has not begun."""
    read = []
    for name in folders:
        with suppress(OSError):  # The job has not begun, or the entry is forgotten by now.
            entry = Ledger(home / "jobs" / name / "ledger").latest()
            position = entry.end["sources"]["in"] if entry is not None else {}
            read.append(sum(count for name, count in position.items() if name.isdigit()))
    return min(read) if len(read) == len(folders) else 0


def rows_of(folder: Path) -> Counter[tuple[int, int]]:
    """Return what is in all Parquet files of a folder."""
    rows = [row for path in folder.glob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    return Counter((row["key"], row["n"]) for row in rows)


def expected_visits(count: int) -> Counter[tuple[int, int]]:
    numbers = Counter(n % KEYS for n in range(count))
    visits = {key: its * (ROUNDS + 1) for key, its in numbers.items()}
    return Counter((key, n + 1) for key, total in visits.items() for n in range(total))


@pytest.mark.parametrize(
    ("kills", "longest", "jobs"),
    [
        pytest.param(8, 1, ("loop",), id="8-alone"),
        pytest.param(2, 1, ("sql-replicas",), id="2-replicas"),
        # All four at once take twice as long to start again as two of them.
        pytest.param(50, 5, ("loop", "sql-replicas"), marks=pytest.mark.full, id="50"),
        pytest.param(50, 5, ("sql", "loop-replicas"), marks=pytest.mark.full, id="50-others"),
    ],
)
@pytest.mark.timeout(3600)
def test_output_is_exact_whenever_java_is_killed(
    tmp_path: Path, kills: int, longest: int, jobs: Sequence[str]
) -> None:
    """Each Java lives for so many batches at the longest."""
    seed = int(os.environ.get("PENSTOCK_TEST_SEED", random.randrange(1 << 32)))
    print(f"PENSTOCK_TEST_SEED={seed}")
    dice = random.Random(seed)
    for name in jobs:
        if name.endswith("replicas"):
            AgreementFolder(tmp_path / "agreements" / name).create(Charter(0, {}))
    output = tmp_path / "output.txt"
    with Feed(tmp_path, jobs) as feed, running(tmp_path, jobs, output) as process:

        def alive() -> None:
            assert process.poll() is None, output.read_text()

        killed = 0
        for number in range(kills):
            java = eventually("another Java", partial(java_of, process, but=killed), meanwhile=alive)
            # Every second one dies at some moment of its start, the others within their batches.
            starting = number % 2 == 1
            if not starting:
                goal = batches(tmp_path) + dice.randint(1, longest)
                eventually("batches go on", partial(_reached, tmp_path, goal), meanwhile=alive)
            threading.Event().wait(dice.uniform(0.0, 4.0 if starting else 0.4))
            java.kill()
            killed = java.pid
        feed.__exit__()
        (tmp_path / "finish").touch()
        eventually("all is processed", lambda: process.poll() is not None)
        assert process.returncode == 0, output.read_text()
        count = feed.count
    failures = [line for line in output.read_text().splitlines() if line.startswith("failed: ")]
    assert len(failures) == kills, "each death is noticed, and no dead session is used again"
    for name in jobs:
        visits = Counter((r.key, r.value) for r in read(tmp_path, f"{name}-visits"))
        assert visits == expected_visits(count), name
        numbers = Counter((r.key, r.value) for r in read(tmp_path, f"{name}-numbers"))
        assert numbers == Counter((n % KEYS, n) for n in range(count)), name
        if name.startswith("sql"):
            assert rows_of(tmp_path / "files" / name) == Counter((n % KEYS, n) for n in range(count)), name
