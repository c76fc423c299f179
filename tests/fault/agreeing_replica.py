"""A replica as a process, without Spark and without a cluster. Started many times, and killed.

``agreeing_replica.py HOME NUMBER ATTEMPT BATCHES`` comes in as a worker does, and runs batches by the planner
and the committer of every job. A batch reads a number that its planner has drawn, and its output is that
number and a checksum of all numbers so far, which is also the state. Whoever publishes an output names the
file by the attempt that made it, so that a second output of a batch would be a second file.
"""

from __future__ import annotations

import os
import random
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import penstock as ps
from penstock.cluster.assignment_documents import Assignment, ReplicaAssignment
from penstock.daemon.worker_folder import WorkerConfig
from penstock.engine.driver.job_start import start_job
from penstock.engine.storage.job_folder import Claim, take_over
from penstock.errors import PenstockError, ReplicaOutdatedError
from penstock.graph.connector_api import Position, Receipt, Sink, SinkWriter, Source, Split, WriteContext
from penstock.record import Record
from penstock.replicas.agreement import batch_agreement
from penstock.replicas.agreement.agreement_protocol import enter, first_batch_to_keep
from penstock.replicas.replica_id import ReplicaId
from penstock.replicas.worker import replica_join, replica_worker
from penstock.testing.local_engine import LocalRuntime

JOB = "agreed"
FORGET_EVERY = 8
KEPT = 6
FAR = 5


def state_after(state: int, number: int) -> int:
    """Return the checksum of all numbers up to one.

    >>> state_after(0, 1) == state_after(0, 2)
    False
    """
    return zlib.crc32(str(number).encode(), state)


class Drawn(Source):
    """Has so many batches, each with one number. No two replicas would plan the same by themselves."""

    def __init__(self, batches: int) -> None:
        self._batches = batches

    def begin(self) -> Position:
        return {"batches": 0, "number": 0}

    def latest(self, after: Position) -> Position:
        if after["batches"] >= self._batches:
            return after
        return {"batches": after["batches"] + 1, "number": random.randrange(10**9)}

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        return [end["number"]]

    def read(self, split: Split) -> Iterator[list[Record]]:
        yield [Record(0, split)]


class Checksum(ps.StatefulTask):
    """Gives each number with the checksum of all up to it."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        [number] = values
        after = state_after(state or 0, number)
        return after, [(key, f"{number} {after}")]


class Files(Sink):
    """Puts each batch out as a file, which is there before under a name that nobody looks at."""

    transactional = True
    shared = True

    def __init__(self, home: Path) -> None:
        self.home = home

    def writer(self, context: WriteContext) -> SinkWriter:
        return _Staging(self.home / "staged" / uuid4().hex)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        for attempt in receipts:
            with suppress(FileExistsError):
                os.link(self.home / "staged" / attempt, self.home / "sink" / f"{batch:06d}.{attempt}")

    def discard(self, receipts: Sequence[Receipt]) -> None:
        for attempt in receipts:
            (self.home / "staged" / attempt).unlink(missing_ok=True)


class _Staging(SinkWriter):
    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, records: list[Record]) -> None:
        [record] = records
        self._file.write_text(record.value)

    def finish(self) -> Receipt | None:
        return self._file.name


def job(home: Path, batches: int) -> ps.Job:
    """Return the job of all replicas."""
    made = ps.Job(JOB, parallelism=1)
    source = made.source("drawn", Drawn(batches))
    source >> made.task("checksum", Checksum()) >> made.sink("files", Files(home))
    return made


def run(home: Path, number: int, attempt: int, batches: int) -> None:
    """Go on until all batches are out, beginning again whenever the others are too far."""
    name = str(ReplicaId(JOB, number))
    assignment = Assignment(name, 1, 1, 1, "", "", "n", membership=ReplicaAssignment(number))
    instance = WorkerConfig(name, "n", "", 1, attempt, "", "", "", str(home), "", assignment)
    replica = replica_worker.ReplicaWorker(instance, home / f"scratch-{number}")
    made = job(home, batches)
    place = take_over(home / "cluster-jobs" / name, Claim(1, attempt))
    replica.attach(replica_worker.replica_blueprint(made, place))
    while True:
        replica.join_replicas(lambda: None)
        handle = start_job(made, LocalRuntime, folder=place, taken=True, replica_spec=replica.replica_spec)
        try:
            handle.wait("drained")
            handle.stop()
        except ReplicaOutdatedError:
            with suppress(PenstockError):
                handle.stop()
            continue
        return


if __name__ == "__main__":
    # Batches of milliseconds: what takes replicas of a cluster ten minutes happens here within a pause.
    batch_agreement._FORGET_EVERY = FORGET_EVERY
    batch_agreement.first_batch_to_keep = partial(first_batch_to_keep, keep=KEPT, seconds=0.0)  # type: ignore[attr-defined]
    replica_join.enter = partial(enter, far=FAR)  # type: ignore[attr-defined]
    replica_join._LOOK = 0.001
    os.environ["PENSTOCK_HOME"] = sys.argv[1]
    run(Path(sys.argv[1]), *map(int, sys.argv[2:]))
