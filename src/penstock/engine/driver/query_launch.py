"""Starts the query of a job.

Resumes from the last run, checks that the job can continue, and replaces or restarts a query in place.
``Restarts`` decides how often, and after which pauses, a query is restarted after transient failures.
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
from penstock.engine.storage.ledger import (
    Ledger,
    LedgerEntry,
    remove_leftovers,
    repaired_entry,
    skipped_entry,
)
from penstock.errors import IncompatibleJobError, JobFailedError
from penstock.graph.edge import buckets_of, slots_of
from penstock.graph.job import Job
from penstock.graph.job_compatibility import incompatibilities, other_sinks, same_graph
from penstock.graph.job_copy import differences
from penstock.key_hash import VERSION
from penstock.local_files import sync
from penstock.replicas.agreement.batch_agreement import AgreedOutput
from penstock.vertex_calls import connector_call

PAUSES = (1.0, 3.0, 10.0)
"""Seconds before each restart; after so many restarts without a new batch the job fails."""


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
        """Return the seconds to wait before the next restart; None if the job should fail.

        ``batches`` is the number of committed batches: progress resets the count of restarts.
        """
        if batches != self.batches:
            self.batches, self.count = batches, 0
        if self.count == len(PAUSES):
            return None
        self.count += 1
        return PAUSES[self.count - 1]


def resume_job(job: Job, blueprint: Blueprint) -> LedgerEntry | None:
    """Check that a job can continue in its folder, complete the last batch, and prepare the sinks.

    Returns the entry of the last committed batch. If the job is rejected, nothing in its folder changes.
    """
    folders = blueprint.folders
    folders.create()
    SourcePositions(blueprint).begin()  # Report a missing source at once.
    ledger = Ledger(folders.ledger, synced=folders.synced)
    last = ledger.latest()
    if last is not None and (entry := repaired_entry(last)) != last:
        ledger.replace(entry)
        last = entry
    skipped = skipped_entry(last, ledger.intent())
    last = skipped or last
    _check_spark(job, folders, last)
    if last is not None and folders.structure.exists():
        structure = read_structure(folders)
        check_continuation(job, structure, folders, last)
        last = _without_other_sinks(job, structure, folders, last, ledger)
    if skipped is not None:
        ledger.commit(skipped)
    remove_leftovers(folders, last)
    _publish_last_batch(blueprint, last, ledger)
    for name, sink in blueprint.sinks.items():
        with connector_call(blueprint.job, name):
            sink.prepare()
    return last


def _publish_last_batch(blueprint: Blueprint, last: LedgerEntry | None, ledger: Ledger) -> None:
    """Publish the output of the last batch, unless it is recorded as published.

    After a clean stop it is, so that sinks may then be changed or moved.
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
    # If the record names a later batch, ledger entries were lost, and it does not apply to the batches that
    # have these numbers now.
    if not ledger.is_published(last.batch) or ledger.is_published(last.batch + 1):
        publish(blueprint, last.batch, last.receipts)
    ledger.note_published(last.batch)


def prepare(
    runtime: Runtime,
    job: Job,
    blueprint: Blueprint,
    known: Blueprint | LedgerEntry | None,
    before: Query | None = None,
) -> Query:
    """Return a query that is ready to start: its code can be sent to the workers.

    ``known`` has the numbers of the job's last run, if there was one.
    """
    buckets = buckets_of(job, known.buckets if known is not None else None)
    slots = min(slots_of(job) or runtime.parallelism, buckets)
    instances = (known.default_instances or known.buckets if known is not None else 0) or slots
    numbered = replace(blueprint, buckets=buckets, slots=slots, default_instances=instances)
    return runtime.query(numbered, before)


def launch(job: Job, query: Query, last: LedgerEntry | None) -> None:
    """Start a query after the last committed batch."""
    folders, buckets = query.blueprint.folders, query.blueprint.buckets
    if last is None or not _is_readable_checkpoint(folders.checkpoint):
        # Without its checkpoint Spark begins where the ledger ends. A checkpoint left by a query that was
        # stopped in its first batch would prevent this.
        shutil.rmtree(folders.checkpoint, ignore_errors=True)
    if last is not None and (last.buckets, last.keys) != (buckets, VERSION):
        last = change_buckets(folders, last, buckets, query.blueprint)
    write_structure(job, folders)
    query.start(last)


def write_structure(job: Job, folders: JobFolders) -> None:
    """Record the structure of the job that runs in a folder."""
    staged = folders.structure.with_suffix(".new")
    with staged.open("w") as file:
        file.write(job.to_json())
        if folders.synced:
            file.flush()
            os.fsync(file.fileno())
    staged.replace(folders.structure)
    if folders.synced:
        sync(folders.structure.parent)  # A ledger entry must never exist without the structure of its job.


def read_structure(folders: JobFolders) -> dict[str, Any]:
    """Return the structure of the last job in a folder; raises FileNotFoundError if there is none."""
    try:
        structure = json.loads(folders.structure.read_text())
    except ValueError:
        structure = None
    if not isinstance(structure, dict):
        raise JobFailedError(
            f"{folders.structure} is damaged: it does not describe the job that ran in {folders.root}, so its"
            " state cannot be checked. Restore the file, or start from scratch with fresh=True (--fresh)"
        )
    return structure


def check_continuation(job: Job, old: dict[str, Any], folders: JobFolders, last: LedgerEntry) -> None:
    """Raise IncompatibleJobError with all reasons why a job cannot continue from a batch of the old one."""
    found = incompatibilities(old, job.to_dict(), has_state=bool(last.state), in_flight=bool(last.feedback))
    if found:
        reasons = "".join(f"\n  - {reason}" for reason in found)
        raise IncompatibleJobError(
            f"job {job.name!r} cannot continue from {folders.root}:{reasons}\n"
            "Undo the change, give the job another name, or start from scratch with fresh=True (--fresh)"
        )


def _without_other_sinks(
    job: Job, old: dict[str, Any], folders: JobFolders, last: LedgerEntry, ledger: Ledger
) -> LedgerEntry:
    """Return the entry of the last batch without the output of changed sinks, which is published already.

    Raises IncompatibleJobError if that output may be unpublished and could no longer be delivered.
    """
    others = other_sinks(old, job.to_dict())
    found = [others[name] for name, receipts in sorted(last.receipts.items()) if receipts and name in others]
    if found and not ledger.is_published(last.batch):
        reasons = "".join(f"\n  - {reason}" for reason in found)
        raise IncompatibleJobError(
            f"job {job.name!r} cannot continue from {folders.root}: its last run ended while it published the"
            f" output of batch {last.batch}, or right after that, and{reasons}\n"
            "Start the unchanged job, stop it, then change it; or start from scratch with fresh=True"
            " (--fresh)"
        )
    return replace(last, receipts={n: receipts for n, receipts in last.receipts.items() if n not in others})


def _check_spark(job: Job, folders: JobFolders, last: LedgerEntry | None) -> None:
    committed = _committed_by_spark(folders)
    if committed > (last.batch if last is not None else -1):
        raise IncompatibleJobError(
            f"job {job.name!r}: Spark's checkpoint in {folders.root} has batch {committed}, but the ledger"
            " does not: files were altered. Restore them, or start from scratch with fresh=True (--fresh)"
        )


def _is_readable_checkpoint(checkpoint: Path) -> bool:
    """Return whether Spark can continue from a checkpoint: its newest commit has a readable offset.

    A power cut can leave empty files. Spark reads only the newest.
    """
    try:
        metadata = checkpoint / "metadata"
        if metadata.exists() and "id" not in json.loads(metadata.read_text()):
            return False
        commits, offsets = (set(_batch_numbers(checkpoint / name)) for name in ("commits", "offsets"))
        if not offsets:
            return False  # Spark starts over only if the folder is empty.
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


def _batch_numbers(folder: Path) -> list[int]:
    return [int(name) for name in os.listdir(folder) if name.isdigit()] if folder.exists() else []


def _committed_by_spark(folders: JobFolders) -> int:
    """Return the ledger's number of the last batch in Spark's checkpoint; -1 if there is none."""
    commits = folders.checkpoint / "commits"
    names = _batch_numbers(commits)
    if not names:
        return -1
    try:
        lines = (folders.checkpoint / "offsets" / str(max(names))).read_text().splitlines()
        return int(json.loads(lines[-1])["batch"]) - 1
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return max(names)


@dataclass(frozen=True)
class Reconfigured:
    """The result of a restart in place."""

    seconds: float
    """The interruption: from the end of the old job's last batch, or the call if it was idle, until the new
    job could run a batch."""
    batch: int
    """The first batch of the new job."""
    changes: tuple[str, ...]
    """Descriptions of the changes."""


@dataclass(frozen=True)
class Replaced:
    """The new query and job, and the result of the restart."""

    query: Query
    job: Job
    done: Reconfigured | None = None
    failure: Exception | None = None


def replace_query(
    runtime: Runtime, old: Query, before: Job, after: Job, blueprint_of: Callable[[Job], Blueprint]
) -> Replaced:
    """Replace the query of a job by that of another. If the change is rejected, the old query runs on."""
    called = time.monotonic()
    after.validate()
    _check_same_run(runtime, before, after)
    blueprint = blueprint_of(after)
    SourcePositions(blueprint).begin()
    structure = before.to_dict()
    if old.batches.last is not None:
        # Records in loops are no obstacle yet: they are drained before the stop.
        check_continuation(after, structure, blueprint.folders, replace(old.batches.last, feedback=[]))
    new = prepare(runtime, after, blueprint, old.blueprint, old)
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
    """Restart a query that has failed, after the last committed batch.

    If this raises, the restart can be tried again later.
    """
    old.abandon()
    last = resume_job(job, old.blueprint)
    again = prepare(runtime, job, old.blueprint, old.blueprint, old)
    launch(job, again, last)
    return again


def _check_same_run(runtime: Runtime, before: Job, after: Job) -> None:
    """Raise IncompatibleJobError for changes that need a new runtime or another folder."""
    reasons = []
    if after.name != before.name:
        reasons.append(f"its name is {after.name!r} now: a job of another name has another folder")
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
    """Restart the old job after its last batch."""
    folders = old.blueprint.folders
    if Ledger(folders.ledger).latest_batch() != (reached.batch if reached is not None else -1):
        return Replaced(old, job, failure=error)
    try:
        write_structure(job, folders)
        last = resume_job(job, old.blueprint)
        again = prepare(runtime, job, old.blueprint, old.blueprint, old)
        launch(job, again, last)
    except Exception as another:
        error.add_note(f"The unchanged job could not be restarted either: {another}")
        return Replaced(old, job, failure=error)
    return Replaced(again, job, failure=error)
