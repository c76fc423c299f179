"""The daemon that Spark's Python workers are forked from: what it has imported, with one thread."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")

_THREAD = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


_IMPORTS = """import os, sys
from penstock.spark import python_worker_daemon as worker_daemon
"""


def _in_a_daemon(code: str, threads: str = "1") -> str:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import os, sys\nfrom penstock.spark import python_worker_daemon as worker_daemon\n{code}",
        ],
        env={**os.environ, "OMP_NUM_THREADS": threads},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


@contextmanager
def _daemon(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start one as Spark does, with a folder before all others on its path, and wait until it listens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.spark.python_worker_daemon", "pyspark.worker"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        (port,) = struct.unpack("!i", process.stdout.read(4))
        assert 0 < port < 1 << 16
        yield process
    finally:
        process.stdin.close()  # By that Spark ends it.
        process.wait(timeout=30)
        process.stdout.close()


def test_all_that_workers_import_is_there_before_the_first_is_forked() -> None:
    told = _in_a_daemon("""
print(worker_daemon.preload(), worker_daemon.threads())
print(*(name for name in worker_daemon._PRELOADED if name not in sys.modules))
""")
    assert told == "True 1\n\n"


def test_where_numpy_would_calculate_with_threads_nothing_is_imported_before() -> None:
    told = _in_a_daemon("print(worker_daemon.preload(), 'numpy' in sys.modules)", threads="2")
    assert told == "False False\n"


def test_workers_draw_different_numbers() -> None:
    told = _in_a_daemon("""
import numpy.random, random
worker_daemon.preload()
for _ in range(2):
    if os.fork() == 0:
        print(numpy.random.random(), random.random(), flush=True)
        os._exit(0)
    os.wait()
""")
    drawn = told.split()
    assert len(drawn) == len(set(drawn)) == 4


def test_it_serves_spark_with_one_thread(tmp_path: Path) -> None:
    with _daemon(tmp_path) as process:
        assert len(list(Path(f"/proc/{process.pid}/task").iterdir())) == 1
        assert b"PENSTOCK_PLAIN_WORKERS" not in Path(f"/proc/{process.pid}/environ").read_bytes()


def test_what_starts_a_thread_is_left_to_the_workers(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text(_THREAD)
    with _daemon(tmp_path) as process:
        assert len(list(Path(f"/proc/{process.pid}/task").iterdir())) == 1
        assert b"PENSTOCK_PLAIN_WORKERS" in Path(f"/proc/{process.pid}/environ").read_bytes()
