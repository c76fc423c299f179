"""Runs a job: gives it a folder of its own, starts it there and follows it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.connect.log_ends import LogSink
from penstock.engine.agreement.member import Member
from penstock.engine.blueprint import Blueprint, Folders, draw
from penstock.engine.ledger import Ledger
from penstock.engine.report import Report
from penstock.errors import JobFailedError, SettingError
from penstock.graph.ends import Source
from penstock.graph.job import Job
from penstock.graph.vertex import SIDE_STREAMS
from penstock.log import home
from penstock.spark.handle import Handle, is_duration
from penstock.spark.launch import check_continuation


def run(
    job: Job,
    until: str | float | None = "drained",
    *,
    master: str | None = None,
    conf: Mapping[str, object] | None = None,
    folder: str | Path | None = None,
    fresh: bool = False,
    on_progress: Callable[[Report], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Report:
    """Run a job here and return what it has done.

    ``until`` is ``"drained"`` (everything that the sources have is processed, loops included), a number
    of seconds, or None for a run that only ``stop`` ends. A job goes on from where its last run ended,
    unless it is ``fresh`` or has a source that does not outlive the program. ``folder`` is where it
    keeps its state, ``jobs/NAME`` below Penstock's home by default.
    """
    _check_until(until)
    with start(job, master=master, conf=conf, folder=folder, fresh=fresh, on_progress=on_progress) as handle:
        handle.follow(until, stop=stop)
    return handle.report


def start(
    job: Job,
    *,
    master: str | None = None,
    conf: Mapping[str, object] | None = None,
    folder: str | Path | None = None,
    fresh: bool = False,
    taken: bool = False,
    member: Member | None = None,
    on_progress: Callable[[Report], None] | None = None,
) -> Handle:
    """Start a job here and return a handle of it while it runs on.

    The options are those of :func:`run`; ``on_progress`` is called by :meth:`Handle.wait`, in the thread
    that waits. A job that nobody has stopped is stopped when the program ends. A folder that was ``taken``
    over from another process is never made anew when it is gone. A ``member`` runs the batches that it and
    the other replicas of the job agree on.
    """
    job.validate()
    with ExitStack() as kept, _told(job):
        place, lasting = kept.enter_context(_job_folder(job, folder, fresh, taken))

        def drawing(job: Job) -> Blueprint:
            sides = {stream: LogSink(f"{job.name}.{stream}", lenient=True) for stream in SIDE_STREAMS}
            drawn = draw(job, folder=place, buckets=1, sides=sides)
            folders = replace(drawn.folders, taken=taken)
            return replace(drawn, lasting=lasting, folders=folders, member=member)

        handle = Handle.begin(job, drawing, master=master, conf=conf, on_progress=on_progress)
        handle.kept = kept.pop_all()
        return handle


def check_folder(job: Job, folder: Path) -> None:
    """Raise IncompatibleJobError when a job could not go on from what another process does in a folder.

    Records on their way through a loop are no obstacle: that process lets them out before it stops.
    """
    folders = Folders(str(folder))
    try:
        last = Ledger(folders.ledger).latest()
        structure = json.loads(folders.structure.read_text())
    except FileNotFoundError:
        return  # Nothing has happened yet, or the folder has just been taken over.
    if last is not None:
        check_continuation(job, structure, folders, replace(last, feedback=[]))


def follow(
    job: Job,
    blueprint: Blueprint,
    until: str | float | None,
    *,
    master: str | None = None,
    conf: Mapping[str, object] | None = None,
    on_progress: Callable[[Report], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Report:
    """Run a blueprint in the folder it names, which must be this process's own."""
    with Handle.begin(job, lambda _: blueprint, master=master, conf=conf, on_progress=on_progress) as handle:
        handle.follow(until, stop=stop)
    return handle.report


@contextmanager
def _told(job: Job) -> Iterator[None]:
    """Say of a disk that refuses which job it keeps from starting."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise JobFailedError(f"job {job.name!r} cannot start: {error}") from error


@contextmanager
def _job_folder(job: Job, folder: str | Path | None, fresh: bool, taken: bool) -> Iterator[tuple[Path, bool]]:
    """Give a run its folder, which no other run has at the same time; say whether it will last."""
    lasting = all(vertex.operator.durable for vertex in job.vertices if isinstance(vertex.operator, Source))
    if folder is None and not lasting:
        place = Path(tempfile.mkdtemp(prefix="penstock-"))
        try:
            yield place, False
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return
    place = Path(folder) if folder is not None else home() / "jobs" / job.name
    if not taken:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(place / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobFailedError(f"job {job.name!r} is running already: another run has {place}") from None
        if fresh:
            for name in os.listdir(place):
                if name != "lock":
                    path = place / name
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield place, True
    finally:
        os.close(descriptor)


def _check_until(until: Any) -> None:
    if not (until is None or until == "drained" or is_duration(until)):
        raise SettingError(f"until takes 'drained', a number of seconds or None, not {until!r}")
