"""Plans the batches of a job: how far each one reads, and into which parts it is divided.

An offset holds the number of the next batch and the position of each source. The next batch always reads all
feedback of a batch, so feedback needs no position.
"""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

from penstock.engine.blueprint import Blueprint
from penstock.engine.execution.batch_stages import BatchPart
from penstock.engine.job_sources import SourcePositions
from penstock.engine.slot_table import SlotTable
from penstock.engine.storage.ledger import Intent, Ledger, LedgerEntry
from penstock.engine.windows.watermarks import BatchClock, TimeProgress, has_due_window, with_expected_lanes
from penstock.errors import IncompatibleJobError, PenstockError
from penstock.local_files import write_private
from penstock.replicas.agreement.batch_agreement import AgreedPlans

DRAIN_LOOPS = "let out"
"""The content of a stop request that first lets records in loops run to their end."""


class BatchPlanner:
    """Decides what the next batch of a job reads. With Spark it runs in a process beside the driver."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._folders = blueprint.folders
        self._job = blueprint.job
        self._blueprint = blueprint
        self._positions = SourcePositions(blueprint)
        self._native = bool(blueprint.plan.native.order)
        self._ledger = Ledger(blueprint.folders.ledger, synced=blueprint.folders.synced)
        self._at_most_once = blueprint.guarantee == "at-most-once"
        self._buckets = blueprint.buckets
        replica_spec = blueprint.replica_spec
        self._agreed = AgreedPlans(replica_spec, blueprint.folders) if replica_spec is not None else None
        self._last: LedgerEntry | None = None
        self._ready = False
        self._planned_at = -inf
        """The monotonic time at which the last batch was planned."""

    def begin(self) -> dict[str, Any]:
        """Return the offset at which Spark starts: after the last committed batch."""
        with self._failures_reported():
            last = self._ledger.latest()
            if last is not None:
                return last.end
            agreed = self._agreed.begin() if self._agreed is not None else None
            return agreed or {"batch": 0, "sources": self._positions.begin()}

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return the offset after the next batch."""
        if not self._ready:
            write_private(self._folders.ready, str(os.getpid()))
            self._ready = True
        with self._failures_reported():
            if self._confirm_stop(start):
                return start
            done = self._ledger.read(start["batch"])
            if done is not None:
                # Spark has lost its record of this batch, which has been committed: keep its end.
                return done.end
            if self._agreed is not None:
                end = self._agreed.next(start, lambda: self._next_offset(start))
            else:
                end = self._next_offset(start)
        if end != start:
            self._planned_at = time.monotonic()
        return end

    def _next_offset(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return the offset after the next batch, without regard to other replicas."""
        before = self._previous_entry(start["batch"])
        # Nothing new is read while loops are drained.
        stopping = self._folders.stop_request.exists()
        if not stopping and time.monotonic() - self._planned_at < self._blueprint.interval:
            return start
        positions = start["sources"] if stopping else self._positions.latest(start["sources"])
        times = TimeProgress.of(before.times if before is not None else None)
        now = max(time.time(), times.now)
        idle = positions == start["sources"] and not (before is not None and before.feedback)
        at_end = idle and self._positions.bounded and not stopping
        if idle and (stopping or not has_due_window(self._blueprint, times, now, at_end=at_end)):
            return start
        end = {
            "batch": start["batch"] + 1,
            "sources": positions,
            "now": now,
            "flush": at_end or times.flushed,
        }
        table = SlotTable.read(self._folders.slots, self._buckets, self._blueprint.slots)
        return end if table.is_even else {**end, "slots": list(table.slot_of)}

    def _confirm_stop(self, start: dict[str, Any]) -> bool:
        """Confirm a stop request, unless records in loops must be drained before."""
        if not self._folders.stop_request.exists():
            return False
        if self._folders.stop_request.read_text() == DRAIN_LOOPS:
            before = self._previous_entry(start["batch"])
            if self._ledger.has(start["batch"]) or (before is not None and before.feedback):
                return False
        self._folders.stop_answer.touch()
        return True

    def parts(self, start: dict[str, Any], end: dict[str, Any]) -> list[BatchPart]:
        """Return the parts of a batch, or a single empty part if there is nothing to do.

        There is nothing to do if the batch is already committed, or if it reads nothing.
        """
        batch = start["batch"]
        with self._failures_reported():
            done = self._ledger.read(batch)
            if done is not None and done.end != end:
                raise IncompatibleJobError(
                    f"batch {batch} of job {self._job!r} was committed with the end {done.end}, but Spark's"
                    f" checkpoint has the end {end}: one of the two was altered. Restore it, or start from"
                    " scratch with fresh=True (--fresh)"
                )
            before = self._previous_entry(batch)
        if done is not None or end["batch"] == batch:
            self._write_range(start, end, empty=True, parts=0)
            return [BatchPart(batch, 0, end, empty=True)]
        if self._at_most_once:
            self._ledger.intend(Intent(batch, end, self._buckets, self._blueprint.default_instances))
        heads = before.state if before is not None else {}
        clock = self._clock(before, end)
        work: list[dict[str, Any]] = [{"feedback": name} for name in (before.feedback if before else [])]
        returned = len(work)
        with self._failures_reported():
            work += [
                {"source": name, "split": split, "lane": self._positions.lane(name, split)}
                for name, split in self._positions.splits(start["sources"], end["sources"])
            ]
        self._write_range(start, end, empty=False, parts=len(work))
        tasks = work or [{}]
        return [
            BatchPart(
                batch,
                number,
                end,
                len(tasks),
                returned,
                heads=heads if number == 0 else None,
                clock=clock,
                slots=end.get("slots"),
                **task,
            )
            for number, task in enumerate(tasks)
        ]

    def _clock(self, before: LedgerEntry | None, end: dict[str, Any]) -> BatchClock:
        """Return the clock of a batch. Its time is part of the offset, so a repeated batch has the same."""
        now = end.get("now", 0.0)
        times = TimeProgress.of(before.times if before is not None else None)
        if self._blueprint.plan.timed:
            with self._failures_reported():
                lanes = self._positions.lanes(end["sources"])
                unread = self._positions.unread(end["sources"])
                times = with_expected_lanes(self._blueprint, times, lanes, unread, now)
        return BatchClock(now, bool(end.get("flush")), times)

    def _write_range(self, start: dict[str, Any], end: dict[str, Any], **more: Any) -> None:
        """Write the range of the batch for the driver, if Spark itself reads some of it."""
        if self._native:
            note = {"batch": start["batch"], "start": start["sources"], "end": end, **more}
            self._folders.planned.write_text(json.dumps(note))

    @contextmanager
    def _failures_reported(self) -> Iterator[None]:
        """Write a failure to a file for the driver: Spark would pass on only the text of its traceback."""
        try:
            yield
        except PenstockError as error:
            self._folders.failure.write_bytes(pickle.dumps(error))
            raise

    def _previous_entry(self, batch: int) -> LedgerEntry | None:
        """Return the entry of the previous batch, which names its feedback and the heads of state."""
        if batch == 0:
            return None
        if self._last is None or self._last.batch != batch - 1:
            self._last = self._ledger.read(batch - 1)
        if self._last is None:
            raise IncompatibleJobError(
                f"Spark's checkpoint of job {self._job!r} has batch {batch - 1}, but the ledger does not:"
                " files were altered. Restore them, or start from scratch with fresh=True (--fresh)"
            )
        return self._last
