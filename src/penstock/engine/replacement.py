"""Restart in place: the query of a running job is exchanged for another one, between two batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.engine.blueprint import Blueprint
from penstock.engine.launch import (
    check_continuation,
    launch,
    prepare,
    resume_job,
    write_structure,
)
from penstock.engine.ledger import Ledger, LedgerEntry
from penstock.engine.positions import SourcePositions
from penstock.engine.runtime import Query, Runtime
from penstock.errors import IncompatibleJobError
from penstock.graph.changes import differences
from penstock.graph.compatibility import same_graph
from penstock.graph.dealing import buckets_of
from penstock.graph.job import Job


@dataclass(frozen=True)
class Reconfigured:
    """What a restart in place has done."""

    seconds: float
    """From the end of the last batch of the old job, or the call if it was idle, until the new one could
    run a batch."""
    batch: int
    """The first batch of the new job."""
    changes: tuple[str, ...]
    """What has changed, in words."""


@dataclass(frozen=True)
class Replaced:
    """The query and the job that run now, and how that came."""

    query: Query
    job: Job
    done: Reconfigured | None = None
    failure: Exception | None = None


def replace_query(
    runtime: Runtime, old: Query, before: Job, after: Job, blueprint_of: Callable[[Job], Blueprint]
) -> Replaced:
    """Exchange the query of a job for that of another. What is refused raises, and the old query runs on."""
    called = time.monotonic()
    after.validate()
    _check_same_run(runtime, before, after)
    blueprint = blueprint_of(after)
    SourcePositions(blueprint).begin()
    structure = before.to_dict()
    if old.batches.last is not None:
        # Records on their way are no obstacle yet: they are let out before the stop.
        check_continuation(after, structure, blueprint.folders, replace(old.batches.last, feedback=[]))
    new = prepare(runtime, blueprint, buckets_of(after) or old.blueprint.buckets, old)
    old.stop(drain_loops=not same_graph(structure, after.to_dict()))
    reached = Ledger(blueprint.folders.ledger).latest()
    try:
        last = resume_job(after, blueprint)
        launch(after, new, last)
        new.wait_until_ready()
    except Exception as error:
        new.stop()
        return _start_again(runtime, old, before, reached, error)
    seconds = new.ready_at - max(old.batches.ended_at, called)
    batch = last.batch + 1 if last is not None else 0
    return Replaced(new, after, Reconfigured(seconds, batch, tuple(differences(before, after))))


def restart_query(runtime: Runtime, old: Query, job: Job) -> Query:
    """Start the query of a job again that has ended by itself, from the last batch that has happened.

    Raises what goes wrong; the old query, which is as dead as before, can then be restarted later.
    """
    old.abandon()
    last = resume_job(job, old.blueprint)
    again = prepare(runtime, old.blueprint, old.blueprint.buckets, old)
    launch(job, again, last)
    return again


def _check_same_run(runtime: Runtime, before: Job, after: Job) -> None:
    """Refuse what cannot change while what runs the batches and the folder stay the same."""
    reasons = []
    if after.name != before.name:
        reasons.append(f"it is called {after.name!r} now: a job of another name has another folder")
    reasons += runtime.obstacles(before, after)
    if reasons:
        lines = "".join(f"\n  - {reason}" for reason in reasons)
        raise IncompatibleJobError(
            f"job {before.name!r} cannot be reconfigured while it runs:{lines}\n"
            "Stop it and start it as it shall be"
        )


def _start_again(
    runtime: Runtime, old: Query, job: Job, reached: LedgerEntry | None, error: Exception
) -> Replaced:
    """Start the old job again, from where it was stopped."""
    folders = old.blueprint.folders
    if Ledger(folders.ledger).latest_batch() != (reached.batch if reached is not None else -1):
        return Replaced(old, job, failure=error)
    try:
        write_structure(job, folders)
        last = resume_job(job, old.blueprint)
        again = prepare(runtime, old.blueprint, old.blueprint.buckets, old)
        launch(job, again, last)
    except Exception as another:
        error.add_note(f"The job as it was could not be started again either: {another}")
        return Replaced(old, job, failure=error)
    return Replaced(again, job, failure=error)
