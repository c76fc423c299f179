"""Plans the batches of a job: how far each one reads, and into which parts it is divided.

An offset says which batch comes next and how far each source has been read. The feedback of a batch is read
by the next one, always and whole, so it needs no position of its own.
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
from penstock.engine.storage.ledger import Intent, Ledger, LedgerEntry
from penstock.engine.windows.watermarks import BatchClock, TimeProgress, has_due_window, with_expected_lanes
from penstock.errors import IncompatibleJobError, PenstockError
from penstock.local_files import write_private
from penstock.replicas.agreement.batch_agreement import AgreedPlans

DRAIN_LOOPS = "let out"
"""What a request to stop says when no record may be on its way any more."""


class BatchPlanner:
    """Decides what the next batch of a job reads. Under Spark it lives in a process beside the driver."""

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
        self._began = -inf
        """When the last batch was planned."""

    def begin(self) -> dict[str, Any]:
        """Return the offset before Spark's first batch: after the last one that has happened."""
        with self._reported():
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
        with self._reported():
            if self._stopping(start):
                return start
            done = self._ledger.read(start["batch"])
            if done is not None:
                # Spark has forgotten a batch that has happened. It ends where it ended.
                return done.end
            if self._agreed is not None:
                end = self._agreed.next(start, lambda: self._wanted(start))
            else:
                end = self._wanted(start)
        if end != start:
            self._began = time.monotonic()
        return end

    def _wanted(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return the offset after the next batch, as far as this job alone is concerned."""
        before = self._before(start["batch"])
        # Nothing new is read while records are let out.
        stopping = self._folders.stop_request.exists()
        if not stopping and time.monotonic() - self._began < self._blueprint.interval:
            return start
        positions = start["sources"] if stopping else self._positions.latest(start["sources"])
        times = TimeProgress.of(before.times if before is not None else None)
        now = max(time.time(), times.now)
        idle = positions == start["sources"] and not (before is not None and before.feedback)
        at_end = idle and self._positions.bounded and not stopping
        if idle and (stopping or not has_due_window(self._blueprint, times, now, at_end=at_end)):
            return start
        return {
            "batch": start["batch"] + 1,
            "sources": positions,
            "now": now,
            "flush": at_end or times.flushed,
        }

    def _stopping(self, start: dict[str, Any]) -> bool:
        """Answer a request to stop, unless records are on their way that are to be let out before."""
        if not self._folders.stop_request.exists():
            return False
        if self._folders.stop_request.read_text() == DRAIN_LOOPS:
            before = self._before(start["batch"])
            if self._ledger.has(start["batch"]) or (before is not None and before.feedback):
                return False
        self._folders.stop_answer.touch()
        return True

    def parts(self, start: dict[str, Any], end: dict[str, Any]) -> list[BatchPart]:
        """Return the parts of a batch; a single empty one when there is nothing to do for it.

        That is when the batch has happened already, and when Spark begins with one that reads nothing.
        """
        batch = start["batch"]
        with self._reported():
            done = self._ledger.read(batch)
            if done is not None and done.end != end:
                raise IncompatibleJobError(
                    f"batch {batch} of job {self._job!r} happened and ended at {done.end}, and Spark's"
                    f" checkpoint says {end}: one of them has been altered. Put it back, or start from"
                    " scratch with fresh=True (--fresh)"
                )
            before = self._before(batch)
        if done is not None or end["batch"] == batch:
            self._note(start, end, empty=True, parts=0)
            return [BatchPart(batch, 0, end, empty=True)]
        if self._at_most_once:
            self._ledger.intend(Intent(batch, end, self._buckets))
        heads = before.state if before is not None else {}
        clock = self._clock(before, end)
        work: list[dict[str, Any]] = [{"feedback": name} for name in (before.feedback if before else [])]
        with self._reported():
            work += [
                {"source": name, "split": split, "lane": self._positions.lane(name, split)}
                for name, split in self._positions.splits(start["sources"], end["sources"])
            ]
        self._note(start, end, empty=False, parts=len(work))
        tasks = work or [{}]
        return [
            BatchPart(
                batch, number, end, len(tasks), heads=heads if number == 0 else None, clock=clock, **task
            )
            for number, task in enumerate(tasks)
        ]

    def _clock(self, before: LedgerEntry | None, end: dict[str, Any]) -> BatchClock:
        """Return what a batch knows of time. Its own moment is part of its offset, so it stays the same."""
        now = end.get("now", 0.0)
        times = TimeProgress.of(before.times if before is not None else None)
        if self._blueprint.plan.timed:
            with self._reported():
                lanes = self._positions.lanes(end["sources"])
                unread = self._positions.unread(end["sources"])
                times = with_expected_lanes(self._blueprint, times, lanes, unread, now)
        return BatchClock(now, bool(end.get("flush")), times)

    def _note(self, start: dict[str, Any], end: dict[str, Any], **more: Any) -> None:
        """Tell the driver what the batch reads, where Spark itself has to read some of it."""
        if self._native:
            note = {"batch": start["batch"], "start": start["sources"], "end": end, **more}
            self._folders.planned.write_text(json.dumps(note))

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Leave word of a failure for the driver: Spark would tell it only the text of a traceback."""
        try:
            yield
        except PenstockError as error:
            self._folders.failure.write_bytes(pickle.dumps(error))
            raise

    def _before(self, batch: int) -> LedgerEntry | None:
        """Return the entry of the batch before, which holds its feedback and where the state is."""
        if batch == 0:
            return None
        if self._last is None or self._last.batch != batch - 1:
            self._last = self._ledger.read(batch - 1)
        if self._last is None:
            raise IncompatibleJobError(
                f"the ledger of job {self._job!r} has no batch {batch - 1}, and Spark's checkpoint has: files"
                " have been altered. Put them back, or start from scratch with fresh=True (--fresh)"
            )
        return self._last
