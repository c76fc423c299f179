"""The replication of a worker: it joins the other replicas, stands by, rebuilds, and reports its progress."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.worker_documents import Difference, ReplicaReport
from penstock.daemon.worker_folder import WorkerConfig
from penstock.engine.blueprint import Blueprint, make_blueprint
from penstock.engine.storage.ledger import Ledger
from penstock.errors import (
    JobFailedError,
    PenstockError,
    ReplicaDivergedError,
    ReplicaOutdatedError,
    SupersededError,
)
from penstock.graph.job import Job
from penstock.process_logs.process_log import get_logger
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import ReplicaSpec
from penstock.replicas.agreement.replica_catch_up import STRAYED, Copier, CopyError, copy_snapshot
from penstock.replicas.worker.replica_join import (
    Divergence,
    Look,
    ReplicaJoin,
    read_divergence,
    replica_folders_of,
    write_divergence,
)

MOST_REBUILDS = 5
"""How often a replica may be rebuilt within a minute before its worker fails."""
MAX_BATCHES_BEHIND = 20
"""A replica that is more batches behind copies another one, unless it catches up by itself."""
CATCH_UP_SECONDS = 15.0
"""Seconds within which the number of batches behind must become smaller by ``_CATCH_UP_SHARE``."""
_CATCH_UP_SHARE = 0.3
_MINUTE = 60.0
_REFRESH_SECONDS = 2.0
_ALIVE_SECONDS = 10.0

_log = get_logger(__name__)


def refuse_if_agreed(storage: Path, assignment: Assignment) -> None:
    """Raise SupersededError when a worker without replicas starts a job that has an agreement by now."""
    if AgreementFolder(replica_folders_of(storage, assignment).agreement).charter() is not None:
        raise SupersededError(f"job {assignment.job!r} has replicas now, which agree on its batches")


def is_falling_behind(gaps: Sequence[tuple[float, int]]) -> bool:
    """Return whether a replica is not catching up, given times and batches behind, oldest first.

    >>> is_falling_behind([(0.0, 40), (16.0, 39)]), is_falling_behind([(0.0, 40), (16.0, 25)])
    (True, False)
    """
    if not gaps:
        return False
    (since, before), (now, gap) = gaps[0], gaps[-1]
    return now - since >= CATCH_UP_SECONDS and gap > max(MAX_BATCHES_BEHIND, before * (1 - _CATCH_UP_SHARE))


class ReplicaWorker:
    """The part of a worker in the replication of its job."""

    def __init__(self, instance: WorkerConfig, scratch: Path) -> None:
        membership = instance.assignment.membership
        assert membership is not None, "only for one of several replicas"
        self._instance = instance
        self._membership = membership
        self._settings = instance.assignment.settings.replicas
        self._scratch = scratch
        self._group = replica_folders_of(Path(instance.storage), instance.assignment)
        self._agreement = AgreementFolder(self._group.agreement)
        self._blueprint: Blueprint | None = None
        self._copier: Copier | None = None
        self._refreshed_at = 0.0
        self._rebuilds: list[float] = []
        self._gaps: deque[tuple[float, int]] = deque()
        self._may_differ_until = -1
        self._joined_at_batch = -1
        self._differed: Difference | None = None
        self.stands_by = False
        """Whether it has taken over its folder and waits to be told to run."""
        self.joined = ReplicaReport()
        """Its position relative to the other replicas, as last read."""

    @property
    def replica_spec(self) -> ReplicaSpec:
        """The description of the replica for the engine."""
        return ReplicaSpec(
            self._instance.job,
            self._membership.number,
            str(self._group.agreement),
            self._instance.assignment.generation,
            holds=self._settings.publishes_by_primary,
            scratch=str(self._scratch / "held"),
            may_differ_until=self._may_differ_until,
        )

    def another_replica_runs(self, now: float) -> bool:
        """Return whether another replica runs, so that the job does not wait for this one."""
        if not self._membership.runs:
            return True
        replica_progress = self._agreement.replica_progress().values()
        return any(
            one.name != self._instance.job and now - one.at < _ALIVE_SECONDS for one in replica_progress
        )

    def attach(self, blueprint: Blueprint) -> None:
        """Set the folder that this worker has taken over."""
        blueprint.folders.create()
        self._blueprint = blueprint
        self.stands_by = not self._membership.runs
        # The first replica creates the agreement even as a standby, because others must not while it exists.
        self._make_join().create_agreement_if_first()

    def refresh_copy(self, look: Look) -> None:
        """Every two seconds, copy the newest batch of another replica, to be able to take over at once."""
        if time.monotonic() - self._refreshed_at < _REFRESH_SECONDS:
            return
        others = self._group.others()
        best = max(sorted(others), key=lambda name: others[name], default="")
        if best and others[best] >= 0:
            try:
                self._copy_from(self._group.base(best), look)
            except CopyError as error:
                _log.info("not copied", replica=best, reason=str(error))
        self._refreshed_at = time.monotonic()

    def _copy_from(self, source: Path, look: Look) -> None:
        folders = self._attached.folders
        if read_divergence(self._folder) is not None:
            copy_snapshot(source, folders, look)
            (self._folder / STRAYED).unlink(missing_ok=True)
        self._copier = self._copier or Copier(folders)
        self._copier.copy(source, look)

    def join_replicas(self, look: Look) -> None:
        """Prepare the folder so that the query can start."""
        self.stands_by = False
        join = self._make_join()
        join.go(look)
        self._copier = None
        self._may_differ_until = max(self._may_differ_until, join.may_differ_until)
        self._joined_at_batch = Ledger(self._attached.folders.ledger).latest_batch()
        self._gaps.clear()

    def check_pace(self, now: float) -> None:
        """Raise ReplicaOutdatedError when copying another replica is faster than catching up.

        ``now`` is the time by a monotonic clock, in seconds.
        """
        gap = self.joined.head - self.joined.batch
        if gap <= MAX_BATCHES_BEHIND:
            self._gaps.clear()
            return
        self._gaps.append((now, gap))
        while len(self._gaps) > 1 and now - self._gaps[1][0] >= CATCH_UP_SECONDS:
            self._gaps.popleft()
        if (
            is_falling_behind(self._gaps)
            and max(self._group.others().values(), default=-1) > self.joined.batch + MAX_BATCHES_BEHIND
        ):
            self._gaps.clear()
            raise ReplicaOutdatedError(
                f"the others are {gap} batches ahead, and this replica does not catch up"
            )

    def record_rebuild(self, error: PenstockError, now: float) -> None:
        """Record why the replica must be rebuilt. Raises JobFailedError if that has happened too often.

        ``now`` is the time by a monotonic clock, in seconds.
        """
        self._rebuilds = [at for at in self._rebuilds if now - at < _MINUTE] + [now]
        if isinstance(error, ReplicaDivergedError):
            write_divergence(self._folder, Divergence(error.batch, error.by))
            if error.alarming:
                self._differed = Difference(error.batch, error.vertex, error.by, error.reason, time.time())
        if len(self._rebuilds) > MOST_REBUILDS:
            who = self._instance.replica.title
            raise JobFailedError(
                f"{who} had to be rebuilt {len(self._rebuilds)} times within a minute:"
                f" {error}. Tasks must give the same result in every replica: check their use of clocks,"
                " random numbers, files and services"
            ) from error

    def leave(self) -> None:
        """Leave the agreement, so that other replicas do not wait for this one."""
        with suppress(OSError):
            self._agreement.leave(self._instance.job)

    def look(self) -> ReplicaReport:
        """Read and return the position of the replica relative to the others."""
        if self._blueprint is None:
            return self.joined
        folders = self._blueprint.folders
        # The query itself reports errors that also occur here.
        with suppress(PenstockError, OSError):
            batch = Ledger(folders.ledger).latest_batch()
            head = self._agreement.head(after=max(batch, self.joined.head))
            self.joined = ReplicaReport(
                batch, head, self._joined_at_batch, not folders.state_incomplete.exists(), self._differed
            )
        return self.joined

    @property
    def _attached(self) -> Blueprint:
        assert self._blueprint is not None, "attach() must be called first"
        return self._blueprint

    @property
    def _folder(self) -> Path:
        return Path(self._attached.folders.root)

    def _make_join(self) -> ReplicaJoin:
        blank = self._settings.skips_state
        return ReplicaJoin(self._group, self._attached, self._copier, blank=blank)


def replica_blueprint(job: Job, place: Path) -> Blueprint:
    """Return the parts of a job's blueprint that joining needs, for a folder that was taken over."""
    blueprint = make_blueprint(job, folder=place, buckets=1, sides={})
    return replace(blueprint, folders=replace(blueprint.folders, taken=True))
