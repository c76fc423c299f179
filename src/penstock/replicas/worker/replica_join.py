"""Joins a worker to the other replicas of its job, for the first time or again.

Replicas share the folder of their agreement, and can read each other's folders. This module uses neither the
store nor the master: replicas with the same storage work without them.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.cluster.assignment_documents import Assignment
from penstock.engine.blueprint import Blueprint
from penstock.engine.job_sources import SourcePositions
from penstock.engine.storage.ledger import Ledger
from penstock.errors import JobFailedError, ReplicaOutdatedError
from penstock.local_files import write_private
from penstock.process_logs.process_log import get_logger
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import AgreementStatus, Charter, JoinAction, enter
from penstock.replicas.agreement.replica_catch_up import (
    STRAYED,
    Copier,
    CopyError,
    clear_replica_folder,
    copy_snapshot,
    join_without_state,
    last_batch,
    skip_to,
)
from penstock.replicas.replica_id import ReplicaId

CREATE_AFTER = 10.0
"""Seconds after which another replica creates the agreement if the first replica has never run."""
TRUST_AFTER = 5.0
"""Seconds that a diverged replica waits for one that has the state behind the committed output."""
GIVE_UP_AFTER = 60.0
_LOOK = 0.05

_log = get_logger(__name__)

Look = Callable[[], None]
"""Called repeatedly during a long operation; it may raise to abort the operation."""


@dataclass(frozen=True)
class ReplicaFolders:
    """The folders of the replicas of a job, from the view of one of them."""

    storage: Path
    name: str
    """The name of this replica."""
    lineage: int = 0
    """The revision up to which earlier results were discarded; each lineage has its own agreement."""

    @property
    def replica(self) -> ReplicaId:
        """The id of this replica."""
        return ReplicaId.parse(self.name)

    @property
    def job(self) -> str:
        """The job of the replicas."""
        return self.replica.job

    @property
    def agreement(self) -> Path:
        """The folder of their agreement."""
        return self.storage / "agreements" / self.job / str(self.lineage)

    def base(self, name: str) -> Path:
        """Return the parent of a replica's folders."""
        return self.storage / "cluster-jobs" / name

    def others(self) -> dict[str, int]:
        """Return the last batch of each other replica that has ever run; -1 if it cannot be copied."""
        places = self.storage / "cluster-jobs"
        names = sorted(path.name for path in places.iterdir()) if places.is_dir() else []
        return {
            name: last_batch(self.base(name), after=self.lineage)
            for name in names
            if name != self.name and (other := ReplicaId.find(name)) is not None and other.job == self.job
        }

    def forget_earlier(self) -> None:
        """Remove the agreements of earlier lineages, from before a start from scratch."""
        for path in sorted(self.agreement.parent.iterdir()):
            if path.name.isdigit() and int(path.name) < self.lineage:
                shutil.rmtree(path, ignore_errors=True)


def replica_folders_of(storage: Path, assignment: Assignment) -> ReplicaFolders:
    """Return the folders of a worker's replicas, even if the worker was assigned without replicas."""
    if assignment.membership is not None:
        return ReplicaFolders(storage, assignment.job, assignment.membership.lineage)
    return ReplicaFolders(storage, assignment.job, (assignment.forget or 0) if assignment.fresh else 0)


@dataclass(frozen=True)
class Divergence:
    """The batch in which a replica had another result, and the replica whose result counts.

    A replica that has diverged must not continue from its own state.
    """

    batch: int
    by: str


def write_divergence(folder: Path, divergence: Divergence) -> None:
    """Write a note to a replica's folder for the next worker that uses it."""
    write_private(folder / STRAYED, json.dumps(asdict(divergence)))


def read_divergence(folder: Path) -> Divergence | None:
    """Read the note; one that cannot be read still means that the replica has diverged."""
    try:
        return Divergence(**json.loads((folder / STRAYED).read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        return Divergence(0, "")


def copy_candidates(
    divergence: Divergence, others: Mapping[str, int], waited: float
) -> Mapping[str, int] | None:
    """Return the replicas that a diverged replica may copy: those whose state includes the committed result.

    An empty result means to wait. None means that no replica has that state, because the one that committed
    the batch died before it saved the state; then the replica may continue from its own.

    >>> copy_candidates(Divergence(5, "count"), {"count": 6, "count~2": 7}, 0.0)
    {'count': 6}
    >>> copy_candidates(Divergence(5, "count"), {"count": 4, "count~2": 5}, 0.0)
    {'count~2': 5}
    >>> copy_candidates(Divergence(5, "count"), {"count": 4}, 1.0)
    {}
    >>> copy_candidates(Divergence(5, "count"), {"count": 4}, 60.0) is None
    True
    """
    able = {name: last for name, last in others.items() if last >= divergence.batch}
    if divergence.by in able:
        return {divergence.by: able[divergence.by]}
    return able if able or waited < TRUST_AFTER else None


class ReplicaJoin:
    """Joins a replica, which has taken over its folder, to the others."""

    def __init__(
        self,
        group: ReplicaFolders,
        blueprint: Blueprint,
        copier: Copier | None = None,
        *,
        blank: bool = False,
    ) -> None:
        self._group = group
        self._blueprint = blueprint
        self._folders = blueprint.folders
        self._folder = Path(blueprint.folders.root)
        self._agreement = AgreementFolder(group.agreement)
        self._number = group.replica.index
        self._copier = copier
        self._without_state = blank
        self._failed: dict[str, CopyError] = {}
        self._logged_action: JoinAction | None = None
        self.may_differ_until = -1
        """The last batch whose result may differ: no replica has the state behind the committed results."""

    def create_agreement_if_first(self) -> None:
        """Create the agreement if this is the first replica and there is none."""
        if self._number == 0 and self._agreement.shared() is None:
            self._create_agreement()

    def go(self, look: Look) -> None:
        """Prepare the folder so that the query can start. Raises JobFailedError when that is not possible."""
        began = time.monotonic()
        while not self._step(look, time.monotonic() - began):
            time.sleep(_LOOK)

    def _step(self, look: Look, waited: float) -> bool:
        """Take the next action, and return whether it was the last."""
        look()
        own = Ledger(self._folders.ledger).latest_batch()
        shared = self._agreement.shared()
        others: Mapping[str, int] = self._group.others()
        if shared is None:
            self._check_not_lost(own, others)
            new = waited >= CREATE_AFTER and not self._first_has_run()
            if enter(self._number, own, None, others, new=new)[0] is JoinAction.CREATE:
                self._create_agreement()
            return False
        divergence = read_divergence(self._folder)
        if divergence is not None:
            able = copy_candidates(divergence, others, waited)
            if able is not None and not able:
                return False  # A replica may have the needed state, and not have saved it yet.
            others = able or {}
        others = {name: last for name, last in others.items() if name not in self._failed}
        stateless = not self._blueprint.plan.needs_exchange
        action, whom = enter(
            self._number, own, shared, others, stray=divergence is not None, stateless=stateless
        )
        if action is not self._logged_action:
            self._logged_action = action
            _log.info("replica joins", how=action.value, whom=whom, own=own, others=dict(others))
        if action is JoinAction.COPY:
            return self._copy(whom, others[whom], look)
        if action is JoinAction.SKIP:
            return self._skip(shared)
        if action is not JoinAction.WAIT and divergence is not None:
            self._accept_divergence(divergence)
        if action is JoinAction.BEGIN:
            # An interrupted copy is not needed to begin with the first batch.
            clear_replica_folder(self._folders)
        if action is JoinAction.WAIT and (self._failed or waited >= GIVE_UP_AFTER):
            raise self._no_snapshot_error(shared)
        return action is not JoinAction.WAIT

    def _accept_divergence(self, divergence: Divergence) -> None:
        """Continue from the own state, although the committed output of a batch came from another state."""
        _log.warning(
            "no replica has the state of the committed result; continuing from own state",
            batch=divergence.batch,
            by=divergence.by,
        )
        self.may_differ_until = divergence.batch
        (self._folder / STRAYED).unlink(missing_ok=True)

    def _first_has_run(self) -> bool:
        """Return whether the first replica has ever run; only if not, others may create the agreement."""
        return self._group.base(str(ReplicaId(self._group.job))).exists()

    def _create_agreement(self) -> None:
        own = Ledger(self._folders.ledger).latest_batch()
        sources = SourcePositions(self._blueprint).begin() if own < 0 else {}
        self._agreement.create(Charter(own + 1, sources))
        _log.info("agreement created", folder=str(self._group.agreement), begin=own + 1)
        self._group.forget_earlier()

    def _copy(self, whom: str, last: int, look: Look) -> bool:
        source = self._group.base(whom)
        try:
            if last < 0:
                # No replica has run a batch yet: begin with the first batch.
                clear_replica_folder(self._folders)
            elif self._without_state:
                last = join_without_state(source, self._folders, look)
            elif self._copier is not None:
                last = self._copier.copy(source, look)
            else:
                last = copy_snapshot(source, self._folders, look)
        except CopyError as error:
            _log.warning("not copied", replica=whom, reason=str(error))
            self._failed[whom] = error
            return False
        _log.info("copied", replica=whom, batch=last)
        (self._folder / STRAYED).unlink(missing_ok=True)
        return True

    def _skip(self, shared: AgreementStatus) -> bool:
        """Continue after the last committed batch, as a job without state can."""
        with suppress(ReplicaOutdatedError):  # All of these batches may have been removed since.
            for batch in range(shared.head, shared.floor - 1, -1):
                commit = self._agreement.committed(batch)
                if commit is not None:
                    skip_to(commit, self._folders)
                    (self._folder / STRAYED).unlink(missing_ok=True)
                    return True
        return False

    def _check_not_lost(self, own: int, others: Mapping[str, int]) -> None:
        """Raise if the agreement existed and was lost: a new one would publish batches twice."""
        # Batches of the first replica do not count: it may have run alone before there were others.
        known = [last for name, last in others.items() if ReplicaId.parse(name).index]
        known += [own] if self._number else []
        if max(known, default=-1) >= 0:
            raise JobFailedError(
                f"job {self._group.job!r}: {self._group.agreement} is missing, the agreement of its replicas:"
                " restore it, or start from scratch (--fresh)"
            )

    def _no_snapshot_error(self, shared: AgreementStatus) -> JobFailedError:
        failed = sorted((ReplicaId.parse(name), str(error)) for name, error in self._failed.items())
        reasons = "".join(f"; {replica.title}: {error}" for replica, error in failed)
        return JobFailedError(
            f"job {self._group.job!r}: {self._group.replica.title} needs a snapshot of batch"
            f" {shared.floor - 1} or later, and no other replica has one{reasons}"
        )
