"""Starts a job in its own folder, on a given runtime."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from penstock.connect.log_connectors import LogSink
from penstock.engine.batch_report import Report
from penstock.engine.blueprint import Blueprint, make_blueprint
from penstock.engine.driver.job_handle import Handle
from penstock.engine.driver.query_launch import check_continuation, read_structure
from penstock.engine.driver.query_runtime import Runtime
from penstock.engine.storage.job_folder import JobFolders
from penstock.engine.storage.ledger import Ledger
from penstock.errors import JobFailedError
from penstock.graph.connector_api import Source
from penstock.graph.job import Job
from penstock.graph.vertex import SIDE_STREAMS
from penstock.local_files import local_path
from penstock.log import home
from penstock.replicas.agreement.agreement_protocol import ReplicaSpec


def start_job(
    job: Job,
    open_runtime: Callable[[], Runtime],
    *,
    folder: str | Path | None = None,
    fresh: bool = False,
    taken: bool = False,
    replica_spec: ReplicaSpec | None = None,
    on_progress: Callable[[Report], None] | None = None,
) -> Handle:
    """Start a job and return a handle of the running job.

    The runtime is opened after the job has been validated. A folder that was ``taken`` over from another
    process is never created again if it is missing. With a ``replica_spec`` the job runs the batches that its
    replicas agree on.
    """
    job.validate()
    with ExitStack() as kept, _os_errors_named(job):
        place, lasting = kept.enter_context(_job_folder(job, folder, fresh, taken))

        def blueprint_of(job: Job) -> Blueprint:
            sides = {stream: LogSink(f"{job.name}.{stream}", lenient=True) for stream in SIDE_STREAMS}
            drawn = make_blueprint(job, folder=place, buckets=1, sides=sides)
            folders = replace(drawn.folders, taken=taken)
            return replace(drawn, lasting=lasting, folders=folders, replica_spec=replica_spec)

        handle = Handle.begin(job, blueprint_of, open_runtime, on_progress=on_progress)
        handle.kept = kept.pop_all()
        return handle


def check_folder(job: Job, folder: Path) -> None:
    """Raise IncompatibleJobError if a job could not continue in a folder in which another process runs.

    Records in loops are no obstacle: that process drains them before it stops.
    """
    folders = JobFolders(str(folder))
    try:
        last = Ledger(folders.ledger).latest()
        structure = read_structure(folders)
    except FileNotFoundError:
        return  # There is no batch yet, or the folder has just been taken over.
    if last is not None:
        check_continuation(job, structure, folders, replace(last, feedback=[]))


@contextmanager
def _os_errors_named(job: Job) -> Iterator[None]:
    """Name the job in I/O errors at start-up."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise JobFailedError(f"job {job.name!r} cannot start: {error}") from error


@contextmanager
def _job_folder(job: Job, folder: str | Path | None, fresh: bool, taken: bool) -> Iterator[tuple[Path, bool]]:
    """Lock the folder of a run; yields its path and whether it outlives the run."""
    lasting = all(vertex.operator.durable for vertex in job.vertices if isinstance(vertex.operator, Source))
    if folder is None and not lasting:
        place = Path(tempfile.mkdtemp(prefix="penstock-"))
        try:
            yield place, False
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return
    place = local_path("folder", folder) if folder is not None else home() / "jobs" / job.name
    if not taken:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(place / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobFailedError(f"job {job.name!r} is running already: another run uses {place}") from None
        if fresh:
            for name in os.listdir(place):
                if name != "lock":
                    path = place / name
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield place, True
    finally:
        os.close(descriptor)
