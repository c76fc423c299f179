"""A worker as a replica of its job: it joins, stands by, restarts, and reports its progress."""

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
"""How often, within a minute, a replica begins again before it leaves that to its supervisor."""
MAX_BATCHES_BEHIND = 20
"""A replica that is more batches behind copies another one if it does not catch up by itself."""
CATCH_UP_SECONDS = 15.0
"""Seconds in which one must have made up for a good part of that."""
_PART = 0.3
_MINUTE = 60.0
_KEEP_UP = 2.0
_ALIVE = 10.0

_log = get_logger(__name__)


def refuse_if_agreed(storage: Path, assignment: Assignment) -> None:
    """Raise SupersededError when a worker that would decide alone comes to a job that has replicas by now."""
    if AgreementFolder(replica_folders_of(storage, assignment).agreement).charter() is not None:
        raise SupersededError(f"the replicas of job {assignment.job!r} agree on its batches by now")


def is_falling_behind(gaps: Sequence[tuple[float, int]]) -> bool:
    """Whether a replica will not catch up by itself, by how many batches it was behind when, oldest first.

    >>> is_falling_behind([(0.0, 40), (16.0, 39)]), is_falling_behind([(0.0, 40), (16.0, 25)])
    (True, False)
    """
    if not gaps:
        return False
    (since, before), (now, gap) = gaps[0], gaps[-1]
    return now - since >= CATCH_UP_SECONDS and gap > max(MAX_BATCHES_BEHIND, before * (1 - _PART))


class ReplicaWorker:
    """One worker's part in the replicas of its job."""

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
        self._kept_up = 0.0
        self._rebuilds: list[float] = []
        self._gaps: deque[tuple[float, int]] = deque()
        self._tolerates = -1
        self._since = -1
        self._differed: Difference | None = None
        self.stands_by = False
        """Whether it has its folder and waits to be told to run."""
        self.joined = ReplicaReport()
        """How it stands among the others, as of the last look."""

    @property
    def replica_spec(self) -> ReplicaSpec:
        """What the engine has to know."""
        return ReplicaSpec(
            self._instance.job,
            self._membership.number,
            str(self._group.agreement),
            self._instance.assignment.generation,
            holds=self._settings.publishes_by_primary,
            scratch=str(self._scratch / "held"),
            may_differ_until=self._tolerates,
        )

    def another_replica_runs(self, now: float) -> bool:
        """Whether another replica is at work, so that nobody waits for this one."""
        if not self._membership.runs:
            return True
        replica_progress = self._agreement.replica_progress().values()
        return any(one.name != self._instance.job and now - one.at < _ALIVE for one in replica_progress)

    def attach(self, blueprint: Blueprint) -> None:
        """Take note that the replica's folder is this worker's now."""
        blueprint.folders.create()
        self._blueprint = blueprint
        self.stands_by = not self._membership.runs
        # The first founds even if it stands by: as long as it might decide alone, others must not.
        self._way_in().create_agreement_if_first()

    def refresh_copy(self, look: Look) -> None:
        """Every other second, bring the folder to where another replica is, so that it can go on at once."""
        if time.monotonic() - self._kept_up < _KEEP_UP:
            return
        others = self._group.others()
        best = max(sorted(others), key=lambda name: others[name], default="")
        if best and others[best] >= 0:
            try:
                self._keep_up_with(self._group.base(best), look)
            except CopyError as error:
                _log.info("not copied", replica=best, reason=str(error))
        self._kept_up = time.monotonic()

    def _keep_up_with(self, source: Path, look: Look) -> None:
        folders = self._drawn.folders
        if read_divergence(self._folder) is not None:
            copy_snapshot(source, folders, look)
            (self._folder / STRAYED).unlink(missing_ok=True)
        self._copier = self._copier or Copier(folders)
        self._copier.copy(source, look)

    def join_replicas(self, look: Look) -> None:
        """Bring the folder to where the query can start."""
        self.stands_by = False
        way_in = self._way_in()
        way_in.go(look)
        self._copier = None
        self._tolerates = max(self._tolerates, way_in.may_differ_until)
        self._since = Ledger(self._drawn.folders.ledger).latest_batch()
        self._gaps.clear()

    def check_pace(self, now: float) -> None:
        """Raise ReplicaOutdatedError when copying another replica is faster than catching up.

        ``now`` counts seconds, from whenever.
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
            raise ReplicaOutdatedError(f"the others are {gap} batches ahead, and that does not become less")

    def record_rebuild(self, error: PenstockError, now: float) -> None:
        """Note why the replica must not go on from what it has. Raises JobFailedError if it was so too often.

        ``now`` counts seconds, from whenever.
        """
        self._rebuilds = [at for at in self._rebuilds if now - at < _MINUTE] + [now]
        if isinstance(error, ReplicaDivergedError):
            write_divergence(self._folder, Divergence(error.batch, error.by))
            if error.alarming:
                self._differed = Difference(error.batch, error.vertex, error.by, error.reason, time.time())
        if len(self._rebuilds) > MOST_REBUILDS:
            who = self._instance.replica.title
            raise JobFailedError(
                f"{who} had to begin again {len(self._rebuilds)} times within a minute:"
                f" {error}. Tasks must give the same result in every replica: see what they take from clocks,"
                " random numbers, files or services"
            ) from error

    def leave(self) -> None:
        """Leave the agreement, so that other replicas do not wait for this one."""
        with suppress(OSError):
            self._agreement.leave(self._instance.job)

    def look(self) -> ReplicaReport:
        """See how the replica stands among the others."""
        if self._blueprint is None:
            return self.joined
        folders = self._blueprint.folders
        # What keeps it from looking is the query's trouble, which says so.
        with suppress(PenstockError, OSError):
            batch = Ledger(folders.ledger).latest_batch()
            head = self._agreement.head(after=max(batch, self.joined.head))
            self.joined = ReplicaReport(
                batch, head, self._since, not folders.unwhole.exists(), self._differed
            )
        return self.joined

    @property
    def _drawn(self) -> Blueprint:
        assert self._blueprint is not None, "settled in before"
        return self._blueprint

    @property
    def _folder(self) -> Path:
        return Path(self._drawn.folders.root)

    def _way_in(self) -> ReplicaJoin:
        blank = self._settings.skips_state
        return ReplicaJoin(self._group, self._drawn, self._copier, blank=blank)


def replica_blueprint(job: Job, place: Path) -> Blueprint:
    """Draw a job as far as coming in needs it, in a folder that was taken over and is never made anew."""
    drawn = make_blueprint(job, folder=place, buckets=1, sides={})
    return replace(drawn, folders=replace(drawn.folders, taken=True))
