"""Runs a job: finds its folder, sees whether it can go on from there, starts it and follows it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.connect.log_ends import LogSink
from penstock.engine.blueprint import Blueprint, Folders, draw
from penstock.engine.continuation import change_buckets, obstacles, remove_leftovers
from penstock.engine.ledger import Entry, Ledger
from penstock.engine.positions import Positions
from penstock.engine.report import Report
from penstock.errors import IncompatibleJobError, JobFailedError, SettingError
from penstock.graph.ends import Source
from penstock.graph.job import Job
from penstock.graph.vertex import SIDE_STREAMS
from penstock.log import home
from penstock.spark.query import JobQuery, publish
from penstock.spark.session import open_session

_LOOK = 0.25
"""How often, in seconds, a run looks up from waiting: for its deadline and for a query that has died."""


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
    if not (until is None or until == "drained" or _is_duration(until)):
        raise SettingError(f"until takes 'drained', a number of seconds or None, not {until!r}")
    job.validate()
    with _job_folder(job, folder, fresh) as (place, lasting):
        sides = {stream: LogSink(f"{job.name}.{stream}", lenient=True) for stream in SIDE_STREAMS}
        blueprint = replace(draw(job, folder=place, buckets=1, sides=sides), lasting=lasting)
        return follow(job, blueprint, until, master=master, conf=conf, on_progress=on_progress, stop=stop)


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
    blueprint.folders.create()
    Positions(blueprint).begin()  # A source that is not there is the user's mistake: say so at once.
    last = Ledger(blueprint.folders.ledger).latest()
    _check_continuation(job, blueprint.folders, last)
    remove_leftovers(blueprint.folders, last)
    if last is not None:
        publish(blueprint, last.batch, last.receipts)
    for sink in blueprint.sinks.values():
        sink.prepare()
    session = open_session(master, job.spark, conf)
    buckets = job.parallelism or (last.buckets if last else session.sparkContext.defaultParallelism)
    if last is not None and last.buckets != buckets:
        last = change_buckets(blueprint.folders, last, buckets)
    _write_structure(job, blueprint.folders)
    query = JobQuery(session, replace(blueprint, buckets=buckets), last)
    query.start()
    try:
        _wait(query, until, on_progress, stop)
    finally:
        query.stop()
    query.report.lag = query.lag
    return query.report


def _wait(
    query: JobQuery,
    until: str | float | None,
    on_progress: Callable[[Report], None] | None,
    stop: Callable[[], bool] | None,
) -> None:
    started = time.monotonic()
    seen = 0
    while True:
        query.check()
        report = query.report
        report.seconds = time.monotonic() - started
        if on_progress is not None:
            report.lag = query.lag
            on_progress(report)
        if stop is not None and stop():
            return
        if until == "drained":
            # Asking the sources is cheap, but there is no news before a batch has ended.
            if query.drained:
                return
        elif until is not None and report.seconds >= float(until):
            return
        with query.changed:
            if query.report.batches == seen:
                query.changed.wait(_LOOK)
            seen = query.report.batches


@contextmanager
def _job_folder(job: Job, folder: str | Path | None, fresh: bool) -> Iterator[tuple[Path, bool]]:
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
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(place / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobFailedError(
                f"job {job.name!r} is running already: another process has {place}"
            ) from None
        if fresh:
            for name in os.listdir(place):
                if name != "lock":
                    path = place / name
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield place, True
    finally:
        os.close(descriptor)


def _check_continuation(job: Job, folders: Folders, last: Entry | None) -> None:
    committed = _committed_by_spark(folders)
    if committed > (last.batch if last is not None else -1):
        raise IncompatibleJobError(
            f"job {job.name!r}: Spark's checkpoint in {folders.root} has batch {committed}, the ledger has"
            " not: files were altered. Put them back, or start from scratch with fresh=True (--fresh)"
        )
    if last is None or not folders.structure.exists():
        return
    found = obstacles(json.loads(folders.structure.read_text()), job.to_dict(), last)
    if found:
        reasons = "".join(f"\n  - {reason}" for reason in found)
        raise IncompatibleJobError(
            f"job {job.name!r} cannot go on from {folders.root}:{reasons}\n"
            "Undo the change, give the job another name, or start from scratch with fresh=True (--fresh)"
        )


def _committed_by_spark(folders: Folders) -> int:
    """Return the last batch that Spark's checkpoint has, by the ledger's way of counting; -1 if none."""
    commits = folders.checkpoint / "commits"
    names = [int(name) for name in os.listdir(commits) if name.isdigit()] if commits.exists() else []
    if not names:
        return -1
    try:
        lines = (folders.checkpoint / "offsets" / str(max(names))).read_text().splitlines()
        return int(json.loads(lines[-1])["batch"]) - 1
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return max(names)


def _write_structure(job: Job, folders: Folders) -> None:
    staged = folders.structure.with_suffix(".new")
    staged.write_text(job.to_json())
    staged.replace(folders.structure)


def _is_duration(until: Any) -> bool:
    return isinstance(until, int | float) and not isinstance(until, bool) and until >= 0
