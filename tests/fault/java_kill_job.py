"""Jobs in one Spark session whose Java is killed again and again: ``java_kill_job.py JOB ...``.

There are a keyed job with a loop and one with SQL, each alone and as two replicas. When Java dies, all that
run fail, and they are started again in a new session, until a file ``finish`` is there and everything is
processed.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.engine.driver.job_handle import Handle
from penstock.errors import PenstockError
from penstock.replicas.agreement.agreement_protocol import ReplicaSpec
from penstock.spark.spark_runtime import start

MASTER = "local[1]"
KEYS = 7
ROUNDS = 2
BATCH = 200
TEXT = 2_000
"""Bytes that the result of a batch carries for each of its records: it shall take a while to arrive."""
HOME = Path(os.environ.get("PENSTOCK_HOME", "."))


def folders_of(name: str) -> list[str]:
    """Return the folders of a job or of its replicas, below the folder ``jobs``."""
    return [f"{name}-{number}" for number in range(2)] if name.endswith("replicas") else [name]


class Tally(ps.StatefulTask):
    """Numbers the visits of each key, so that a batch that is lost or repeated shows in all that follow."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        seen = state or 0
        return seen + len(values), [(key, (seen + n, value)) for n, value in enumerate(values, start=1)]


class Route(ps.Task):
    """Sends each number round twice, and notes every visit."""

    outputs = ("again", "visits", "numbers")

    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        for record in inputs["in"]:
            visit, (number, done) = record.value
            outputs.emit(record.key, visit, port="visits")
            if done < ROUNDS:
                outputs.emit(record.key, (number, done + 1), port="again")
            else:
                outputs.emit(record.key, number, port="numbers")


def make(name: str) -> ps.Job:
    """Return one of the jobs."""
    k = 1 if name.endswith("replicas") else 0
    job = ps.Job(name, parallelism=2, k=k, max_iterations=ROUNDS)
    vertex = job.source("in", ps.LogSource("in", max_records_per_batch=BATCH), schema="n long")
    if name.startswith("sql"):
        vertex = vertex >> job.task("sql", ps.Sql(f"SELECT n % {KEYS} AS _key, n FROM input"))
        # Spark itself writes these files.
        vertex >> job.sink("files", ps.FileSink(HOME / "files" / name, key_column="key"))
    begin = job.task("begin", lambda r: (r.value["n"] % KEYS, (r.value["n"], 0)))
    tally, route = job.task("tally", Tally()), job.task("route", Route())
    vertex >> begin >> tally >> route
    route["again"] >> tally
    route["visits"] >> job.sink("visits", ps.LogSink(f"{name}-visits"))
    route["numbers"] >> job.sink("numbers", ps.LogSink(f"{name}-numbers"))
    route["numbers"] >> job.task("write", lambda r: "x" * TEXT) >> job.sink("text", ps.MemorySink())
    return job


def begin_all(names: list[str], handles: list[Handle]) -> None:
    """Start jobs, the replicated ones twice. If one does not start, those before it are among the handles."""
    for name in names:
        for number, folder in enumerate(folders_of(name)):
            place, replica_spec = HOME / "jobs" / folder, None
            if folder != name:
                title = f"{name}~{number}" if number else name
                agreement = str(HOME / "agreements" / name)
                replica_spec = ReplicaSpec(title, number, agreement, scratch=str(place / "scratch"))
            handles.append(start(make(name), master=MASTER, folder=place, replica_spec=replica_spec))


def run_until_java_dies(names: list[str]) -> bool:
    """Run jobs; say whether they have come to their end."""
    handles: list[Handle] = []
    try:
        begin_all(names, handles)
        while True:
            for handle in handles:
                handle.check()
            if (HOME / "finish").exists() and all(handle.drained() for handle in handles):
                return True
            time.sleep(0.02)
    except PenstockError as error:
        print(f"failed: {error}", flush=True)
        return False
    finally:
        for handle in handles:
            with suppress(PenstockError):
                handle.stop()


def main() -> None:
    """Run the jobs to their end, in as many sessions as it takes."""
    while not run_until_java_dies(sys.argv[1:]):
        pass


if __name__ == "__main__":
    main()
