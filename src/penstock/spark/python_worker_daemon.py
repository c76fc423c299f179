"""The daemon of Python workers that replaces Spark's own: ``python -m ... MODULE``.

It imports the modules of all workers before it forks the first one, which makes their start faster. In a
cluster it also captures the output of user-defined Spark functions (UDFs) of a ``ps.DataFrameTask``, which
run in workers without Penstock's own code. This output is stored without a vertex, because Spark calls
functions of several vertices from one place.
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
    """Run a worker of Spark in a forked process."""
    capture_user_output_in_spark(ctx.running_vertex)
    with vertex_call(""):
        return _work(sock, authenticated)


def preload() -> bool:
    """Import the modules of workers, if that starts no thread; return whether they were imported.

    A forked process has only one thread, and waits forever for locks held by others. NumPy starts no thread
    if workers calculate with one thread, which is Spark's default.
    """
    if not _THREADS.is_dir() or os.environ.get("OMP_NUM_THREADS") != "1" or _PLAIN in os.environ:
        return False
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in _PRELOADED:
        with suppress(Exception):  # A worker that needs the module will raise the error.
            import_module(name)
    os.register_at_fork(after_in_child=_seed_numpy)
    # Exempt the objects from garbage collection, so that workers share their memory.
    gc.collect()
    gc.freeze()
    return True


def _seed_numpy() -> None:
    """Seed NumPy differently in each worker, as Python itself does."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()


def threads() -> int:
    """Return the number of threads of this process."""
    return len(os.listdir(_THREADS))


def main() -> None:
    """Preload modules and serve Spark. If preloading has started a thread, restart without it."""
    if preload() and threads() > 1:
        os.environ[_PLAIN] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "penstock.spark.python_worker_daemon", *sys.argv[1:]])  # noqa: S606
    daemon.worker = work
    daemon.manager()


if __name__ == "__main__":
    main()
