"""Joins a worker to the other replicas of its job, for the first time or again.

Replicas share a folder with what they have agreed on, and can read each other's folders. Nothing here asks
the store or the master: replicas that see the same storage get along without either.
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
"""Seconds after which another replica founds the agreement if the first has never begun."""
TRUST_AFTER = 5.0
"""Seconds that a replica which has strayed waits for one that has the state behind the output that counts."""
GIVE_UP_AFTER = 60.0
_LOOK = 0.05

_log = get_logger(__name__)

Look = Callable[[], None]
"""Called again and again while something takes time. May raise, and so end it."""


@dataclass(frozen=True)
class ReplicaFolders:
    """Where the replicas of a job have their files, as one of them sees it."""

    storage: Path
    name: str
    """Of that one."""
    lineage: int = 0
    """Replicas that forget what was done up to this revision agree apart from those that do not."""

    @property
    def replica(self) -> ReplicaId:
        """That one."""
        return ReplicaId.parse(self.name)

    @property
    def job(self) -> str:
        """The job of all of them."""
        return self.replica.job

    @property
    def agreement(self) -> Path:
        """Where they agree."""
        return self.storage / "agreements" / self.job / str(self.lineage)

    def base(self, name: str) -> Path:
        """Return the place of a replica's folders."""
        return self.storage / "cluster-jobs" / name

    def others(self) -> dict[str, int]:
        """Return the last batch of each other replica that has ever begun; -1 if it is no help."""
        places = self.storage / "cluster-jobs"
        names = sorted(path.name for path in places.iterdir()) if places.is_dir() else []
        return {
            name: last_batch(self.base(name), after=self.lineage)
            for name in names
            if name != self.name and (other := ReplicaId.find(name)) is not None and other.job == self.job
        }

    def forget_earlier(self) -> None:
        """Remove what replicas have agreed on that start from scratch since."""
        for path in sorted(self.agreement.parent.iterdir()):
            if path.name.isdigit() and int(path.name) < self.lineage:
                shutil.rmtree(path, ignore_errors=True)


def replica_folders_of(storage: Path, assignment: Assignment) -> ReplicaFolders:
    """Return the group of a worker, whether or not it knows itself that there is one."""
    if assignment.membership is not None:
        return ReplicaFolders(storage, assignment.job, assignment.membership.lineage)
    return ReplicaFolders(storage, assignment.job, (assignment.forget or 0) if assignment.fresh else 0)


@dataclass(frozen=True)
class Divergence:
    """That a replica must not go on from what it has: where it came to another result, and whose counts."""

    batch: int
    by: str


def write_divergence(folder: Path, stray: Divergence) -> None:
    """Leave word in a replica's folder, for whoever has it next."""
    write_private(folder / STRAYED, json.dumps(asdict(stray)))


def read_divergence(folder: Path) -> Divergence | None:
    """Read what was left; a note that cannot be read says that much, too."""
    try:
        return Divergence(**json.loads((folder / STRAYED).read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        return Divergence(0, "")


def copy_candidates(stray: Divergence, others: Mapping[str, int], waited: float) -> Mapping[str, int] | None:
    """Return the replicas that a diverged replica may copy: those whose state includes the committed result.

    Empty means wait; None means that no replica has that state, because the one that committed died before it
    saved it. The replica may then keep its own.

    >>> copy_candidates(Divergence(5, "count"), {"count": 6, "count~2": 7}, 0.0)
    {'count': 6}
    >>> copy_candidates(Divergence(5, "count"), {"count": 4, "count~2": 5}, 0.0)
    {'count~2': 5}
    >>> copy_candidates(Divergence(5, "count"), {"count": 4}, 1.0)
    {}
    >>> copy_candidates(Divergence(5, "count"), {"count": 4}, 60.0) is None
    True
    """
    able = {name: last for name, last in others.items() if last >= stray.batch}
    if stray.by in able:
        return {stray.by: able[stray.by]}
    return able if able or waited < TRUST_AFTER else None


class ReplicaJoin:
    """One way in, for a replica that has its folder."""

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
        self._blank = blank
        self._failed: dict[str, CopyError] = {}
        self._noted: JoinAction | None = None
        self.may_differ_until = -1
        """Up to this batch the replica may differ: no other replica has the state of the committed results.
        """

    def create_agreement_if_first(self) -> None:
        """Make the shared place, if this is the first replica and nobody has."""
        if self._number == 0 and self._agreement.shared() is None:
            self._create_agreement()

    def go(self, look: Look) -> None:
        """Bring the folder to where the query can start. Raises JobFailedError when that is not possible."""
        began = time.monotonic()
        while not self._step(look, time.monotonic() - began):
            time.sleep(_LOOK)

    def _step(self, look: Look, waited: float) -> bool:
        """Do what is next, and say whether that was all."""
        look()
        own = Ledger(self._folders.ledger).latest_batch()
        shared = self._agreement.shared()
        others: Mapping[str, int] = self._group.others()
        if shared is None:
            self._check_not_lost(own, others)
            new = waited >= CREATE_AFTER and not self._begun()
            if enter(self._number, own, None, others, new=new)[0] is JoinAction.CREATE:
                self._create_agreement()
            return False
        stray = read_divergence(self._folder)
        if stray is not None:
            able = copy_candidates(stray, others, waited)
            if able is not None and not able:
                return False  # Somebody may have what this one needs, and has not said so yet.
            others = able or {}
        others = {name: last for name, last in others.items() if name not in self._failed}
        stateless = not self._blueprint.plan.needs_exchange
        entrance, whom = enter(
            self._number, own, shared, others, stray=stray is not None, stateless=stateless
        )
        if entrance is not self._noted:
            self._noted = entrance
            _log.info("replica joins", how=entrance.value, whom=whom, own=own, others=dict(others))
        if entrance is JoinAction.COPY:
            return self._copy(whom, others[whom], look)
        if entrance is JoinAction.SKIP:
            return self._skip(shared)
        if entrance is not JoinAction.WAIT and stray is not None:
            self._accept_divergence(stray)
        if entrance is JoinAction.BEGIN:
            clear_replica_folder(
                self._folders
            )  # Of a copy that was cut short: who begins with the first batch lacks nothing.
        if entrance is JoinAction.WAIT and (self._failed or waited >= GIVE_UP_AFTER):
            raise self._unable(shared)
        return entrance is not JoinAction.WAIT

    def _accept_divergence(self, stray: Divergence) -> None:
        """Go on from what there is, though it is not what the output of a batch came from."""
        _log.warning(
            "no replica has the state of the committed result; continuing from own state",
            batch=stray.batch,
            by=stray.by,
        )
        self.may_differ_until = stray.batch
        (self._folder / STRAYED).unlink(missing_ok=True)

    def _begun(self) -> bool:
        """Whether the first replica has ever begun: as long as it might decide alone, nobody founds."""
        return self._group.base(str(ReplicaId(self._group.job))).exists()

    def _create_agreement(self) -> None:
        own = Ledger(self._folders.ledger).latest_batch()
        sources = SourcePositions(self._blueprint).begin() if own < 0 else {}
        self._agreement.create(Charter(own + 1, sources))
        _log.info("agreement founded", folder=str(self._group.agreement), begin=own + 1)
        self._group.forget_earlier()

    def _copy(self, whom: str, last: int, look: Look) -> bool:
        source = self._group.base(whom)
        try:
            if last < 0:
                clear_replica_folder(
                    self._folders
                )  # Nobody has done anything yet: it begins again with the first batch.
            elif self._blank:
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
        """Go on after the last batch that is committed: a job that keeps nothing needs no more."""
        with suppress(ReplicaOutdatedError):  # All of them may have been forgotten since.
            for batch in range(shared.head, shared.floor - 1, -1):
                commit = self._agreement.committed(batch)
                if commit is not None:
                    skip_to(commit, self._folders)
                    (self._folder / STRAYED).unlink(missing_ok=True)
                    return True
        return False

    def _check_not_lost(self, own: int, others: Mapping[str, int]) -> None:
        """Never found anew what was there: batches would come out twice."""
        # The first one may have run alone before there were others: what it has done says nothing.
        known = [last for name, last in others.items() if ReplicaId.parse(name).index]
        known += [own] if self._number else []
        if max(known, default=-1) >= 0:
            raise JobFailedError(
                f"job {self._group.job!r}: {self._group.agreement} is gone, and with it what replicas have"
                " agreed on: put it back, or start from scratch (--fresh)"
            )

    def _unable(self, shared: AgreementStatus) -> JobFailedError:
        failed = sorted((ReplicaId.parse(name), str(error)) for name, error in self._failed.items())
        reasons = "".join(f"; {replica.title}: {error}" for replica, error in failed)
        return JobFailedError(
            f"job {self._group.job!r}: {self._group.replica.title} needs a snapshot of a batch from"
            f" {shared.floor - 1} on, and no other replica has one{reasons}"
        )
