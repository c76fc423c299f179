"""Brings a job to where its query runs: what the last run left is settled, what has changed is taken over."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.engine.agreement.output import AgreedOutput
from penstock.engine.blueprint import Blueprint, JobFolders
from penstock.engine.continuation import change_buckets, given_up_entry, mended, remove_leftovers
from penstock.engine.ledger import Ledger, LedgerEntry
from penstock.engine.positions import SourcePositions
from penstock.engine.publishing import publish
from penstock.engine.runtime import Query, Runtime
from penstock.errors import IncompatibleJobError, JobFailedError, connector_call
from penstock.graph.compatibility import incompatibilities, other_sinks
from penstock.graph.job import Job
from penstock.keys import VERSION
from penstock.private_files import sync


def resume_job(job: Job, blueprint: Blueprint) -> LedgerEntry | None:
    """See whether a job can go on in its folder, end what the last run began, and make the sinks ready.

    Returns the last batch that has happened. A job that is refused is harmed in nothing.
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
    # A note of later batches is of entries that are lost, and says nothing of those with their numbers now.
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
