"""The folder of a job: its files, and the worker that holds it.

The folders of a job are siblings, named by revision and attempt; only one of them has the ledger. A worker
takes over the job by renaming that folder to its own name. After that, the paths of the former holder no
longer exist, so it can commit nothing, however long it was paused. A folder that it creates at the old path
has no ledger and is never mistaken for the job's folder. This module must import little, because supervisors
use it.
"""

from __future__ import annotations

import errno
import re
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from penstock.errors import JobFailedError, SupersededError
from penstock.local_files import sync_with_parents


@dataclass(frozen=True)
class JobFolders:
    """The paths of a job's files. All are below one folder, which can be copied as a whole."""

    root: str
    taken: bool = False
    """Whether this process took over the folder. If it is then missing, a newer worker holds it.
    """
    synced: bool = False
    """Whether all files of a batch are synced to the disk before the batch is committed."""

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint: the positions of each batch."""
        return Path(self.root) / "checkpoint"

    @property
    def ledger(self) -> Path:
        """One file for each committed batch."""
        return Path(self.root) / "ledger"

    @property
    def state(self) -> Path:
        """Keyed state: a folder of shared files, and one for each bucket."""
        return Path(self.root) / "state"

    @property
    def feedback(self) -> Path:
        """Feedback: parcels for the next batch."""
        return Path(self.root) / "feedback"

    @property
    def stop_request(self) -> Path:
        """Exists while no new batch may be planned."""
        return Path(self.root) / "stop"

    @property
    def ready(self) -> Path:
        """Exists once batches are planned; contains the id of the planner's process."""
        return Path(self.root) / "ready"

    @property
    def failure(self) -> Path:
        """The pickled error of the planner."""
        return Path(self.root) / "failure"

    @property
    def structure(self) -> Path:
        """The structure of the job in its last run."""
        return Path(self.root) / "job.json"

    @property
    def planned(self) -> Path:
        """The range of the current batch, for sources that Spark reads."""
        return Path(self.root) / "planned"

    @property
    def slots(self) -> Path:
        """The slot table for the next batches, if it is not the default one."""
        return Path(self.root) / "slots"

    @property
    def state_incomplete(self) -> Path:
        """Exists while a replica lacks state from before it joined; it then takes part in no agreement."""
        return Path(self.root) / "unwhole"

    @property
    def digests_pending(self) -> Path:
        """Exists while a replica that joined without state has not adopted the others' state digests."""
        return Path(self.root) / "uncounted"

    @property
    def primary(self) -> Path:
        """Exists while a replica is the primary, if only the primary publishes output."""
        return Path(self.root) / "primary"

    @property
    def is_new(self) -> bool:
        """Whether no batch has been committed yet."""
        return not self.ledger.is_dir() or not any(self.ledger.iterdir())

    @property
    def stop_answer(self) -> Path:
        """Exists once the last batch before a stop has ended."""
        return Path(self.root) / "stopped"

    def create(self) -> None:
        """Create the folders, accessible to their owner only."""
        if not self.taken:
            Path(self.root).mkdir(mode=0o700, parents=True, exist_ok=True)
            self.ledger.mkdir(mode=0o700, exist_ok=True)
        elif not self.ledger.is_dir():
            raise SupersededError(f"{self.root} is missing: another worker has taken over the job")
        for folder in (self.state, self.feedback):
            folder.mkdir(mode=0o700, exist_ok=True)
        if self.synced:
            sync_with_parents(Path(self.root))


_NAME = re.compile(r"(\d{6,})-(\d{4,})")
_FIRST = "000000-0000"
"""The name of a job's folder that no worker holds yet. It sorts before all others."""
_EMPTYING = "emptying-"
_LEDGER = "ledger"
_LOCK = "lock"
_PATIENCE = 5.0
_PAUSE = 0.01


@dataclass(frozen=True, order=True)
class Claim:
    """The revision and attempt of the worker that holds a job's folder. A later claim is greater.

    >>> Claim(3, 12).name, Claim.of("000003-0012") == Claim(3, 12), Claim.of("begun") is None
    ('000003-0012', True, True)
    """

    revision: int
    attempt: int

    @property
    def name(self) -> str:
        """The name of the folder."""
        return f"{self.revision:06d}-{self.attempt:04d}"

    @classmethod
    def of(cls, name: str) -> Claim | None:
        """Parse the name of a folder; None if it is not a claim."""
        found = _NAME.fullmatch(name)
        return cls(int(found[1]), int(found[2])) if found else None


def current_claim(base: Path) -> Claim | None:
    """Return the claim of the current holder of the job's folder; None if there is no folder."""
    names = [path.name for path in base.iterdir()] if base.is_dir() else []
    claims = [claim for name in names if (claim := Claim.of(name)) is not None]
    return max((claim for claim in claims if has_ledger(base / claim.name)), default=None)


def has_ledger(folder: Path) -> bool:
    """Return whether a folder is the job's, so that its holder has not been superseded."""
    return (folder / _LEDGER).is_dir()


def is_emptied(folder: Path) -> bool:
    """Return whether a folder is marked to be emptied: its content is obsolete and not removed yet."""
    return any(folder.glob(f"{_EMPTYING}*"))


def take_over(
    base: Path,
    claim: Claim,
    *,
    fresh: bool = False,
    forget: int | None = None,
    patience: float = _PATIENCE,
) -> Path:
    """Take over the job's folder for a worker, and return it.

    ``fresh`` discards the content written by revisions up to ``forget``, or by all earlier ones; that of
    earlier attempts of this revision is kept. Raises SupersededError if a later worker holds the folder,
    JobFailedError if the folder existed and is missing now.
    """
    own = base / claim.name
    deadline = time.monotonic() + patience
    while True:
        holder = current_claim(base)
        if holder is None:
            # A folder may be missing from a listing made during its rename: list again before raising.
            if not _has_begun(base):
                _create_base(base)
            elif time.monotonic() < deadline:
                time.sleep(_PAUSE)
            elif not fresh:
                raise JobFailedError(
                    f"the job's folder in {base} is missing: restore it, or start from scratch (--fresh)"
                )
            else:
                _remove_base(base)
            continue
        deadline = time.monotonic() + patience
        if holder > claim:
            raise SupersededError(f"{base / holder.name} belongs to a later worker than {claim.name}")
        if holder == claim:
            raise JobFailedError(f"{own} is in use: a worker of the same number has been started before")
        if fresh and holder.revision <= (claim.revision - 1 if forget is None else forget):
            # Marked before the rename, so that the next worker completes it after a crash.
            with suppress(FileNotFoundError):
                (base / holder.name / _mark_name(claim)).touch(mode=0o600)
        try:
            (base / holder.name).rename(own)
        except FileNotFoundError:
            continue  # another worker was faster
        break
    _prepare_for_holder(base, holder, claim)
    return own


def _has_begun(base: Path) -> bool:
    """Return whether a job has had a folder: from then on it is only taken over, never created."""
    try:
        return any(base.iterdir())
    except FileNotFoundError:
        return False


def _create_base(base: Path) -> None:
    """Create the base of a job together with its first folder, by one rename, so that two workers never both
    create it.
    """
    base.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    staged = _temporary_sibling(base)
    for folder in (staged, staged / _FIRST, staged / _FIRST / _LEDGER):
        folder.mkdir(mode=0o700)
    try:
        staged.rename(base)
    except OSError as error:
        shutil.rmtree(staged, ignore_errors=True)
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # Else another worker was faster.
            raise


def _remove_base(base: Path) -> None:
    """Remove the base of a job whose folder is missing, before a start from scratch."""
    away = _temporary_sibling(base)
    with suppress(FileNotFoundError):
        base.rename(away)
        shutil.rmtree(away, ignore_errors=True)


def _temporary_sibling(base: Path) -> Path:
    return base.with_name(f".{base.name}.{uuid4().hex}")


def _prepare_for_holder(base: Path, holder: Claim, claim: Claim) -> None:
    """Prepare a folder that was just taken over for its new holder."""
    own = base / claim.name
    with suppress(FileNotFoundError):  # A later worker may take it over at once.
        # The former holder keeps its lock, on a file that is no longer reachable by path.
        (own / _LOCK).unlink(missing_ok=True)
        # An earlier attempt of this revision may have died while it emptied the folder.
        if any((own / _mark_name(one)).exists() for one in (holder, claim)):
            _empty_folder(own)
        for note in own.glob(f"{_EMPTYING}*"):
            note.unlink(missing_ok=True)
        # The job continues from the ledger; Spark's checkpoint may describe a half-written batch.
        shutil.rmtree(own / "checkpoint", ignore_errors=True)
    _remove_orphans(base, claim)
    if not has_ledger(own):
        raise SupersededError(f"{own} was immediately taken over by a later worker")


def _mark_name(claim: Claim) -> str:
    return f"{_EMPTYING}{claim.revision:06d}"


def _empty_folder(own: Path) -> None:
    """Remove all content of a job's folder except the marks that it is to be emptied."""
    for path in sorted(own.iterdir()):
        if path.name == _LEDGER:
            for entry in sorted(path.iterdir()):
                entry.unlink(missing_ok=True)
        elif path.is_dir():
            shutil.rmtree(path)
        elif not path.name.startswith(_EMPTYING):
            path.unlink(missing_ok=True)


def _remove_orphans(base: Path, claim: Claim) -> None:
    """Remove folders that former holders have created at their old paths since."""
    for path in sorted(base.iterdir()):
        other = Claim.of(path.name)
        if other is not None and other < claim and not has_ledger(path):
            shutil.rmtree(path, ignore_errors=True)
