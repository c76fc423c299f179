"""Faster first batches.

Provides a small job that warms up a new session, and creates the archive of classes that shortens the start
of Java. Run as a program, this module is the process whose Java writes the archive at exit.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import penstock as ps
from penstock.connect.driver_connectors import MemorySink, MemorySource
from penstock.engine.blueprint import make_blueprint
from penstock.engine.driver.job_handle import Handle
from penstock.errors import SettingError
from penstock.graph.aggregations import Count
from penstock.graph.job import Job
from penstock.graph.vertex import SIDE_STREAMS
from penstock.java_runtime import (
    JAVA_OPTIONS_VARIABLE,
    archive_folder,
    archive_name,
    recording_options,
    remove_unusable,
)
from penstock.local_files import sync
from penstock.spark.spark_runtime import SparkRuntime
from penstock.spark.spark_session import close_session


def warm_up(
    like: Job, *, master: str, conf: Mapping[str, object], folder: Path, cores: int, timeout: float
) -> bool:
    """Run a small job in a session to warm it up; return whether it finished in time."""
    job = Job("rehearsal", guarantee=like.guarantee, spark=like.spark)
    source = job.source("source", MemorySource(range(4 * cores), partitions=cores))
    count = job.task("count", Count())
    sink = job.sink("sink", MemorySink())
    source >> job.task("key", lambda record: (record.value, 1)) >> count >> sink
    with tempfile.TemporaryDirectory(prefix="rehearsal-", dir=folder) as place:
        sides = {stream: MemorySink() for stream in SIDE_STREAMS}
        blueprint = make_blueprint(job, folder=Path(place), buckets=1, sides=sides)
        open_runtime = partial(SparkRuntime.open, job, master, conf)
        with Handle.begin(job, lambda _: blueprint, open_runtime) as handle:
            return handle.follow("drained", timeout)


_MASTER = "local[2]"
_TIMEOUT_SECONDS = 300.0
"""Seconds. Writing takes about fifteen of one core."""


def prepare(folder: Path | None = None) -> Path:
    """Create the archive for this Java and these jars, and remove unusable ones.

    Raises SettingError if it cannot be created.
    """
    folder = folder or archive_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as place:
            made = Path(place) / "made.jsa"
            _write_archive(made)
            made.chmod(0o644)
            sync(made)
            path = made.replace(folder / archive_name(made.stat().st_size))
        remove_unusable(folder)
    except OSError as error:
        raise SettingError(f"the archive of Spark's classes cannot be written: {error}") from error
    return path


def _write_archive(made: Path) -> None:
    """Run the jobs in another process, whose Java writes the archive."""
    environment = {**os.environ, "PENSTOCK_HOME": str(made.parent), JAVA_OPTIONS_VARIABLE: ""}
    command = [sys.executable, "-m", "penstock.spark.warm_start", str(made)]
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=made.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)  # Including Java, which would write on for a while.
        process.wait()
        raise
    if process.returncode or not made.is_file():
        *_, last = ["it printed nothing", *said.splitlines()]
        raise SettingError(f"Java did not write an archive of Spark's classes: {last.strip()}")


def _run_warm_up_jobs(made: Path) -> int:
    """Run the jobs and return the exit code of Java: a killed Java may have written a partial archive."""
    from pyspark import SparkContext

    conf = {"spark.driver.extraJavaOptions": shlex.join(recording_options(made))}
    folder = made.parent
    warm_up(ps.Job("like"), master=_MASTER, conf=conf, folder=folder, cores=2, timeout=_TIMEOUT_SECONDS)
    ps.run(_sql_job(folder), master=_MASTER, conf=conf, folder=folder / "job")
    assert SparkContext._gateway is not None, "a job has run"
    java = SparkContext._gateway.proc
    close_session(_TIMEOUT_SECONDS)
    return int(java.returncode)


def _sql_job(folder: Path) -> ps.Job:
    """Return a job that reads files, runs SQL, counts, writes to a log and lets Spark write files."""
    (folder / "input").mkdir()
    (folder / "input" / "1.json").write_text('{"name": "a", "number": 1}\n')
    job = ps.Job("prepare")
    read = job.source("read", ps.FileSource(folder / "input", "json", schema="name string, number long"))
    query = job.task("query", ps.Sql("SELECT upper(name) AS _key, number FROM input WHERE number > 0"))
    read >> query >> job.sink("files", ps.FileSink(folder / "output", key_column="name"))
    query >> job.task("count", ps.Count()) >> job.sink("write", ps.LogSink("numbers"))
    return job


if __name__ == "__main__":
    sys.exit(_run_warm_up_jobs(Path(sys.argv[1])))
