"""The daemon of Python workers that Spark starts in place of its own: ``python -m ... MODULE``.

It imports what all workers import before it forks the first of them, so that they need not. In a cluster it
also keeps what functions print that a ``ps.DataFrameTask`` has made Spark functions of (UDFs): these run in
workers that know nothing of Penstock. Their output is kept without a vertex, because Spark calls functions of
several vertices from one place.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from socket import socket

from pyspark import daemon

from penstock.engine.batch_context import ctx
from penstock.process_logs.output_capture import capture_user_output_in_spark
from penstock.vertex_calls import vertex_call

_PRELOADED = (
    "numpy",
    "pyarrow",
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "penstock.connect.log_connectors",
    "penstock.engine.execution.keyed_bucket",
    "penstock.spark.data_source",
)
_PLAIN = "PENSTOCK_PLAIN_WORKERS"
_THREADS = Path("/proc/self/task")
"""One entry for each thread of this process, on Linux."""

_work = daemon.worker


def work(sock: socket, authenticated: bool) -> int:
    """Do as a worker of Spark does, in a process that was forked for it."""
    capture_user_output_in_spark(ctx.running_vertex)
    with vertex_call(""):
        return _work(sock, authenticated)


def preload() -> bool:
    """Import what workers use, where none of it starts a thread, and say whether it has been.

    A fork has one thread only, and waits for ever for locks that others held. Spark has its workers calculate
    with one thread unless the user says otherwise; only then does numpy start none.
    """
    if not _THREADS.is_dir() or os.environ.get("OMP_NUM_THREADS") != "1" or _PLAIN in os.environ:
        return False
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in _PRELOADED:
        with suppress(Exception):  # Where a worker needs it, the worker will say so.
            import_module(name)
    os.register_at_fork(after_in_child=_seed_apart)
    # What no worker changes is then shared by all of them.
    gc.collect()
    gc.freeze()
    return True


def _seed_apart() -> None:
    """Have numpy draw other numbers in each worker, as Python itself does."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()


def threads() -> int:
    """Return how many threads this process has."""
    return len(os.listdir(_THREADS))


def main() -> None:
    """Preload, and serve Spark. With a thread more than expected, begin again and preload nothing."""
    if preload() and threads() > 1:
        os.environ[_PLAIN] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "penstock.spark.python_worker_daemon", *sys.argv[1:]])  # noqa: S606
    daemon.worker = work
    daemon.manager()


if __name__ == "__main__":
    main()
