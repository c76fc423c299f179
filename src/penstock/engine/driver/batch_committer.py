"""Commits the batches of a job: one ledger entry makes positions, state, feedback and output valid together.

The runtime, Spark or that of a test, passes the complete result of a batch to the committer. It writes the
entry, publishes output, agrees with other replicas and removes old files, in the same way for every runtime.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from penstock.engine.batch_report import Report, TaskSummary, VertexReport
from penstock.engine.blueprint import Blueprint
from penstock.engine.job_sinks import publish, tidy
from penstock.engine.job_sources import SourcePositions, acknowledge
from penstock.engine.record_digest import chained_digests
from penstock.engine.storage.keyed_state import bucket_folder, remove_before, shared_folder
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.engine.storage.state_chain import oldest_shared_batch
from penstock.engine.windows.watermarks import TimeProgress, advance, has_due_window
from penstock.errors import (
    IncompleteBatchError,
    InterruptedBatchError,
    JobFailedError,
    PenstockError,
    QueryInterruptedError,
)
from penstock.process_logs.process_log import get_logger
from penstock.replicas.agreement.batch_agreement import AgreedOutput, Offer
from penstock.replicas.agreement.replica_catch_up import is_complete

ATTEMPTS = 3
"""How many times a batch with an incomplete result is run before the job fails."""

PAUSES = (0.5, 2.0)
"""Seconds to wait before each repetition of an interrupted batch: the machine may be busy."""

_ENTRIES_KEPT = 20

_log = get_logger(__name__)


class BatchCommitter:
    """Runs and commits the batches of one job. ``changed`` is notified after each commit.

    A committer that replaces another one of the same job (``before``) continues its report.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        before: BatchCommitter | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.blueprint = blueprint
        self._sleep = sleep
        self.last: LedgerEntry | None = None
        """The last committed batch, whose output is published."""
        self.ended_at = 0.0
        """The monotonic time at which the last batch ended."""
        self._ledger = Ledger(blueprint.folders.ledger, synced=blueprint.folders.synced)
        self._positions = SourcePositions(blueprint)
        self._agreed = AgreedOutput(blueprint) if blueprint.replica_spec is not None else None
        self._names = [vertex.name for vertex in blueprint.vertices]
        self._kinds = [vertex.kind for vertex in blueprint.vertices]
        self.changed: threading.Condition = before.changed if before else threading.Condition()
        self.report: Report = before.report if before else Report(blueprint.job, {})

    def begin(self, last: LedgerEntry | None) -> None:
        """Continue after the last committed batch."""
        self.last = last
        for name in self._names:
            self.report.vertices.setdefault(name, VertexReport())

    def run_batch(self, attempt: Callable[[], TaskSummary]) -> None:
        """Run a batch and commit it. A batch with an incomplete result is run again.

        ``attempt`` runs it and returns the merged summaries of all its tasks; it raises IncompleteBatchError
        if some are missing. With guarantee "at-most-once" a batch is never repeated: the job fails, and its
        next start skips the batch, as after any crash.
        """
        started = time.monotonic()
        attempts = 1 if self.blueprint.guarantee == "at-most-once" else ATTEMPTS
        for number in range(1, attempts + 1):
            try:
                summary = attempt()
                break
            except IncompleteBatchError as error:
                if number == attempts:
                    raise self._incomplete_error(error, attempts) from error
                _log.warning(
                    "incomplete batch is repeated",
                    job=error.job,
                    batch=error.batch,
                    attempt=number,
                    reason=error.reason,
                )
                if isinstance(error, InterruptedBatchError):
                    self._sleep(PAUSES[min(number, len(PAUSES)) - 1])
        self._commit(summary, started)
        self.ended_at = time.monotonic()
        with self.changed:
            self.report.add(self._names, self._kinds, summary, self.ended_at - started)
            self.changed.notify_all()

    def end(self) -> None:
        """Record the last published batch: a job that continues from it may have other sinks.

        With replicas, a batch that another replica publishes counts as published only when that replica has
        recorded it.
        """
        if self.last is None:
            return
        with suppress(
            PenstockError, OSError
        ):  # If this fails, the next start publishes the batch again, as after a crash.
            if self._agreed is None or self._agreed.is_published(self.last.batch):
                self._ledger.note_published(self.last.batch)

    def _incomplete_error(self, error: IncompleteBatchError, attempts: int) -> JobFailedError:
        if attempts == 1:
            outcome = "at most once, a batch is not repeated: the next start skips its records"
        else:
            outcome = f"it was run {attempts} times. Start the job again to continue with this batch"
            if isinstance(error, InterruptedBatchError):
                return QueryInterruptedError(f"{error}. Nothing of the batch was committed; {outcome}")
        return JobFailedError(f"{error}. Nothing of the batch was committed; {outcome}")

    def _commit(self, summary: TaskSummary, started: float) -> None:
        # Spark's batch numbers restart if its checkpoint is lost; those of the ledger continue.
        batch = summary.end["batch"] - 1
        if batch < summary.batch:
            return  # If there is nothing to read yet, Spark begins with an empty batch.
        if self._agreed is not None:
            self._commit_as_agreed(self._agreed, batch, summary, started)
        else:
            self._commit_alone(batch, summary)

    def _commit_alone(self, batch: int, summary: TaskSummary) -> None:
        before = self.last
        sinks = self.blueprint.sinks
        publish_first = self.blueprint.guarantee == "at-least-once"
        if publish_first:
            publish(self.blueprint, batch, summary.receipts)
            summary.receipts = {}
        transactional = {name: made for name, made in summary.receipts.items() if sinks[name].transactional}
        entry = self._entry(batch, summary, transactional)
        if summary.empty or not self._ledger.commit(entry):
            # The batch was committed before a crash, and its entry stands. Publish it now, unless it is
            # recorded as published: its sinks may have changed since.
            entry = self._existing_entry(entry)
            summary.receipts = {} if self._ledger.is_published(batch) else dict(entry.receipts)
        publish(self.blueprint, batch, summary.receipts)
        tidy(self.blueprint)
        self.last = entry
        self._remove_obsolete_files(before, entry)
        if self.blueprint.lasting:
            acknowledge(self.blueprint, entry.end)

    def _commit_as_agreed(
        self, agreed: AgreedOutput, batch: int, summary: TaskSummary, started: float
    ) -> None:
        """Commit a batch of a replica: state is its own, output is agreed on with the other replicas."""
        before = self.last
        entry = self._entry(batch, summary, {})
        if summary.empty or self._ledger.has(batch):
            entry = self._existing_entry(entry)  # Spark has lost its record of this batch.
        else:
            offer = Offer(
                batch,
                summary.end,
                summary.receipts,
                summary.digests,
                entry.digests,
                time.monotonic() - started,
            )
            counted = agreed.settle(offer)
            entry.receipts = {name: list(made) for name, made in counted.receipts.items()}
            self._update_completeness(entry, counted.state)
            self._ledger.commit(entry)
        self.last = entry
        self._remove_obsolete_files(before, entry)

    def _existing_entry(self, entry: LedgerEntry) -> LedgerEntry:
        """Return the ledger's entry of a batch; raises JobFailedError if its end positions differ."""
        found = self._ledger.read(entry.batch)
        if found is None or found.end != entry.end:
            raise JobFailedError(
                f"batch {entry.batch} of job {self.blueprint.job!r} was committed by another run meanwhile"
            )
        return found

    def _update_completeness(self, entry: LedgerEntry, state: Mapping[str, int]) -> None:
        """Let a replica that joined without state take part in agreements once its windows are complete.

        Its digests start differently, so it adopts those of the other replicas.
        """
        folders = self.blueprint.folders
        if folders.state_incomplete.exists():
            joined = TimeProgress.of(json.loads(folders.state_incomplete.read_text()))
            if is_complete(self.blueprint, joined, TimeProgress.of(entry.times)):
                folders.state_incomplete.rename(folders.digests_pending)
        elif folders.digests_pending.exists() and state:
            entry.digests = dict(state)
            folders.digests_pending.unlink()

    def _entry(self, batch: int, summary: TaskSummary, receipts: dict[str, list[Any]]) -> LedgerEntry:
        before = self.last
        return LedgerEntry(
            batch=batch,
            end=summary.end,
            receipts=receipts,
            feedback=summary.feedback,
            state={**(before.state if before else {}), **summary.state},
            buckets=self.blueprint.buckets,
            default_instances=self.blueprint.default_instances,
            times=advance(self.blueprint, summary),
            digests=self._state_digests(summary),
        )

    def _state_digests(self, summary: TaskSummary) -> dict[str, int]:
        """Return the digests of all state changes so far; none if they are not to be compared."""
        folders = self.blueprint.folders
        if self._agreed is None or folders.state_incomplete.exists() or folders.digests_pending.exists():
            return {}
        return chained_digests(self.last.digests if self.last else {}, summary.state_digests)

    def _remove_obsolete_files(self, before: LedgerEntry | None, entry: LedgerEntry) -> None:
        if before is None or before.batch != entry.batch - 1:
            return
        folders = self.blueprint.folders
        for name in before.feedback:
            (folders.feedback / name).unlink(missing_ok=True)
        for bucket, head in entry.state.items():
            known = before.state.get(bucket)
            if known is not None and known.base_batch != head.base_batch:
                remove_before(bucket_folder(folders.state, bucket), head.base_batch)
        if entry.batch % _ENTRIES_KEPT == 0:
            remove_before(
                shared_folder(folders.state), oldest_shared_batch(entry.state.values(), entry.batch)
            )
            self._ledger.trim(_ENTRIES_KEPT)

    @property
    def drained(self) -> bool:
        """Whether all records of the sources are processed, including those in loops."""
        if self.last is not None and self.last.feedback:
            return False
        if not self._positions.exhausted(self._reached_positions()):
            return False
        if self.last is None or not self._positions.bounded:
            return True
        return not has_due_window(self.blueprint, TimeProgress.of(self.last.times), time.time(), at_end=True)

    @property
    def lag(self) -> int | None:
        """The number of unread records in the sources; None if they cannot tell."""
        return self._positions.lag(self._reached_positions())

    def _reached_positions(self) -> dict[str, Any]:
        return self.last.end["sources"] if self.last is not None else {}
