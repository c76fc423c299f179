"""Starts the query of a job.

Resumes from what the last run has left, checks that the job can continue, and replaces or restarts a query
in place. ``Restarts`` says how often, and after which pause, a query is started again that a transient
failure has ended.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.engine.blueprint import Blueprint
from penstock.engine.driver.bucket_migration import change_buckets
from penstock.engine.driver.query_runtime import Query, Runtime
from penstock.engine.job_sinks import publish
from penstock.engine.job_sources import SourcePositions
from penstock.engine.storage.job_folder import JobFolders
from penstock.engine.storage.ledger import Ledger, LedgerEntry, given_up_entry, mended, remove_leftovers
from penstock.errors import IncompatibleJobError, JobFailedError
from penstock.graph.edge import buckets_of
from penstock.graph.job import Job
from penstock.graph.job_compatibility import incompatibilities, other_sinks, same_graph
from penstock.graph.job_copy import differences
from penstock.key_hash import VERSION
from penstock.local_files import sync
from penstock.replicas.agreement.batch_agreement import AgreedOutput
from penstock.vertex_calls import connector_call

PAUSES = (1.0, 3.0, 10.0)
"""Seconds before each restart without a batch in between; there are no more of them."""


@dataclass
class Restarts:
    """The restarts of a job since its last batch.

    >>> restarts = Restarts()
    >>> [restarts.next_pause(batches=7) for _ in range(4)]
    [1.0, 3.0, 10.0, None]
    >>> restarts.next_pause(batches=8)
    1.0
    """

    count: int = 0
    batches: int = -1

    def next_pause(self, batches: int) -> float | None:
        """Return how many seconds to wait before the next restart, None when the job is to be given up.

        ``batches`` is how many have been committed so far: who makes progress starts to count anew.
        """
        if batches != self.batches:
            self.batches, self.count = batches, 0
        if self.count == len(PAUSES):
            return None
        self.count += 1
        return PAUSES[self.count - 1]


def resume_job(job: Job, blueprint: Blueprint) -> LedgerEntry | None:
    """See whether a job can go on in its folder, end what the last run began, and make the sinks ready.

    Returns the entry of the last committed batch. Refusing a job changes nothing in its folder.
    """
    folders = blueprint.folders
    folders.create()
    SourcePositions(blueprint).begin()  # A source that is not there is the user's mistake: say so at once.
    ledger = Ledger(folders.ledger, synced=folders.synced)
    last = ledger.latest()
    if last is not None and (entry := mended(last)) != last:
        ledger.replace(entry)
        last = entry
    given_up = given_up_entry(last, ledger.intent())
    last = given_up or last
    _check_spark(job, folders, last)
    if last is not None and folders.structure.exists():
        structure = read_structure(folders)
        check_continuation(job, structure, folders, last)
        last = _without_other_sinks(job, structure, folders, last, ledger)
    if given_up is not None:
        ledger.commit(given_up)
    remove_leftovers(folders, last)
    _bring_out(blueprint, last, ledger)
    for name, sink in blueprint.sinks.items():
        with connector_call(blueprint.job, name):
            sink.prepare()
    return last


def _bring_out(blueprint: Blueprint, last: LedgerEntry | None, ledger: Ledger) -> None:
    """Make sure that all output of the last batch is out.

    What is known to be out is left alone: after a clean stop sinks may be others, or elsewhere.
    """
    if last is None:
        ledger.forget_published()
        return
    if blueprint.replica_spec is not None:
        agreed = AgreedOutput(blueprint)
        agreed.resume(last)
        if agreed.is_published(last.batch):
            ledger.note_published(last.batch)
        return
    # If the note names a later batch, its entries were lost; it says nothing about the batches that have
    # these numbers now.
    if not ledger.is_published(last.batch) or ledger.is_published(last.batch + 1):
        publish(blueprint, last.batch, last.receipts)
    ledger.note_published(last.batch)


def prepare(
    runtime: Runtime, blueprint: Blueprint, buckets: int | None, before: Query | None = None
) -> Query:
    """Return a query that is ready to start: its code can be sent to the workers."""
    return runtime.query(replace(blueprint, buckets=buckets or runtime.parallelism), before)


def launch(job: Job, query: Query, last: LedgerEntry | None) -> None:
    """Start a query after the last batch that has happened."""
    folders, buckets = query.blueprint.folders, query.blueprint.buckets
    if last is None or not _is_whole(folders.checkpoint):
        # The ledger says all that Spark's own files do: without them Spark begins where the ledger ends. What
        # a query that was stopped in its first batch has noted would keep it from that.
        shutil.rmtree(folders.checkpoint, ignore_errors=True)
    if last is not None and (last.buckets, last.keys) != (buckets, VERSION):
        last = change_buckets(folders, last, buckets, query.blueprint)
    write_structure(job, folders)
    query.start(last)


def write_structure(job: Job, folders: JobFolders) -> None:
    """Note the structure of the job that runs in a folder from now on."""
    staged = folders.structure.with_suffix(".new")
    with staged.open("w") as file:
        file.write(job.to_json())
        if folders.synced:
            file.flush()
            os.fsync(file.fileno())
    staged.replace(folders.structure)
    if folders.synced:
        sync(folders.structure.parent)  # No entry may be there of a job of which nobody knows what it was.


def read_structure(folders: JobFolders) -> dict[str, Any]:
    """Return the structure of the job that ran in a folder last. Raises FileNotFoundError when none has."""
    try:
        structure = json.loads(folders.structure.read_text())
    except ValueError:
        structure = None
    if not isinstance(structure, dict):
        raise JobFailedError(
            f"{folders.structure} is damaged: it does not say which job ran in {folders.root}, so nobody can"
            " tell whether its state fits. Put the file back, or start from scratch with fresh=True (--fresh)"
        )
    return structure


def check_continuation(job: Job, old: dict[str, Any], folders: JobFolders, last: LedgerEntry) -> None:
    """Raise IncompatibleJobError with all reasons why a job cannot go on from a batch of the old one."""
    found = incompatibilities(old, job.to_dict(), has_state=bool(last.state), in_flight=bool(last.feedback))
    if found:
        reasons = "".join(f"\n  - {reason}" for reason in found)
        raise IncompatibleJobError(
            f"job {job.name!r} cannot go on from {folders.root}:{reasons}\n"
            "Undo the change, give the job another name, or start from scratch with fresh=True (--fresh)"
        )


def _without_other_sinks(
    job: Job, old: dict[str, Any], folders: JobFolders, last: LedgerEntry, ledger: Ledger
) -> LedgerEntry:
    """Return the last batch without output for sinks that are others now: it is out.

    Raises IncompatibleJobError when it may not be, and would have no way out any more.
    """
    others = other_sinks(old, job.to_dict())
    found = [others[name] for name, receipts in sorted(last.receipts.items()) if receipts and name in others]
    if found and not ledger.is_published(last.batch):
        reasons = "".join(f"\n  - {reason}" for reason in found)
        raise IncompatibleJobError(
            f"job {job.name!r} cannot go on from {folders.root}: its last run ended while the output of batch"
            f" {last.batch} was brought out, or right after that, and{reasons}\n"
            "Start the job as it was, stop it, and change it then; or start from scratch with fresh=True"
            " (--fresh)"
        )
    return replace(last, receipts={n: receipts for n, receipts in last.receipts.items() if n not in others})


def _check_spark(job: Job, folders: JobFolders, last: LedgerEntry | None) -> None:
    committed = _committed_by_spark(folders)
    if committed > (last.batch if last is not None else -1):
        raise IncompatibleJobError(
            f"job {job.name!r}: Spark's checkpoint in {folders.root} has batch {committed}, the ledger has"
            " not: files were altered. Put them back, or start from scratch with fresh=True (--fresh)"
        )


def _is_whole(checkpoint: Path) -> bool:
    """Whether Spark can go on from a checkpoint: what it has committed has an offset that can be read.

    A power cut can leave files without what was written to them. Spark asks only for the newest.
    """
    try:
        metadata = checkpoint / "metadata"
        if metadata.exists() and "id" not in json.loads(metadata.read_text()):
            return False
        commits, offsets = (set(_numbers(checkpoint / name)) for name in ("commits", "offsets"))
        if not offsets:
            return False  # Spark begins anew, and only where there is nothing, not even a file half written.
        for number in sorted(offsets)[-2:]:
            version, *lines = (checkpoint / "offsets" / str(number)).read_text().splitlines()
            if not version.startswith("v") or len(lines) < 2 or not all(map(json.loads, lines)):
                return False
        for number in sorted(commits)[-2:]:
            version, *lines = (checkpoint / "commits" / str(number)).read_text().splitlines()
            if not version.startswith("v") or not all(isinstance(json.loads(line), dict) for line in lines):
                return False
        return max(commits, default=-1) in {*offsets, -1}
    except (OSError, ValueError, TypeError):
        return False


def _numbers(folder: Path) -> list[int]:
    return [int(name) for name in os.listdir(folder) if name.isdigit()] if folder.exists() else []


def _committed_by_spark(folders: JobFolders) -> int:
    """Return the last batch that Spark's checkpoint has, by the ledger's way of counting; -1 if none."""
    commits = folders.checkpoint / "commits"
    names = _numbers(commits)
    if not names:
        return -1
    try:
        lines = (folders.checkpoint / "offsets" / str(max(names))).read_text().splitlines()
        return int(json.loads(lines[-1])["batch"]) - 1
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return max(names)


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
            f"job {before.name!r} cannot be reconfigured while it runs:{lines}\nStop it and start it with "
            "the new definition"
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
