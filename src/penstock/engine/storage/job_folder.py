"""The folder of a job: the files in it, and which worker holds it.

The folders of a job lie side by side, named by revision and attempt; only one of them has the ledger. A
worker takes the job over by renaming that folder to its own name. Whatever the former holder does
afterwards uses a path that no longer exists, so it can commit nothing, however long it was paused. What it
creates at the old path has no ledger and is never taken for the job's folder. This module must stay light:
supervisors import it.
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
    """Where a job keeps its files. All of them are below one folder, which can be copied as a whole."""

    root: str
    taken: bool = False
    """Whether this process took the folder over. If the folder is then missing, a newer worker owns it.
    """
    synced: bool = False
    """Whether all that a batch writes is brought to the disk before the batch counts."""

    @property
    def checkpoint(self) -> Path:
        """Spark's own checkpoint: which batch covers which positions."""
        return Path(self.root) / "checkpoint"

    @property
    def ledger(self) -> Path:
        """One file for each committed batch."""
        return Path(self.root) / "ledger"

    @property
    def state(self) -> Path:
        """Keyed state, a folder for each bucket."""
        return Path(self.root) / "state"

    @property
    def feedback(self) -> Path:
        """What goes into the next batch instead of a sink."""
        return Path(self.root) / "feedback"

    @property
    def stop_request(self) -> Path:
        """Exists while no new batch may start."""
        return Path(self.root) / "stop"

    @property
    def ready(self) -> Path:
        """Exists once batches are planned, and says by which process."""
        return Path(self.root) / "ready"

    @property
    def failure(self) -> Path:
        """What went wrong while a batch was planned."""
        return Path(self.root) / "failure"

    @property
    def structure(self) -> Path:
        """The job's structure when it ran last."""
        return Path(self.root) / "job.json"

    @property
    def planned(self) -> Path:
        """What the batch that runs reads, for those who read it beside Python."""
        return Path(self.root) / "planned"

    @property
    def unwhole(self) -> Path:
        """Exists while a replica lacks state from before it joined: it neither plans nor commits a batch."""
        return Path(self.root) / "unwhole"

    @property
    def uncounted(self) -> Path:
        """Exists while a replica that joined without state does not know the state digests of the others."""
        return Path(self.root) / "uncounted"

    @property
    def primary(self) -> Path:
        """Exists while a replica is the primary, where only that gives output."""
        return Path(self.root) / "primary"

    @property
    def is_new(self) -> bool:
        """Whether nothing has happened yet."""
        return not self.ledger.is_dir() or not any(self.ledger.iterdir())

    @property
    def stop_answer(self) -> Path:
        """Exists once the last batch before a stop is over."""
        return Path(self.root) / "stopped"

    def create(self) -> None:
        """Make the folders, readable by their owner alone."""
        if not self.taken:
            Path(self.root).mkdir(mode=0o700, parents=True, exist_ok=True)
            self.ledger.mkdir(mode=0o700, exist_ok=True)
        elif not self.ledger.is_dir():
            raise SupersededError(f"{self.root} is gone: another worker has taken the job over")
        for folder in (self.state, self.feedback):
            folder.mkdir(mode=0o700, exist_ok=True)
        if self.synced:
            sync_with_parents(Path(self.root))


_NAME = re.compile(r"(\d{6,})-(\d{4,})")
_FIRST = "000000-0000"
"""What a job's folder is called before anybody has it. The lowest of all names."""
_EMPTYING = "emptying-"
_LEDGER = "ledger"
_LOCK = "lock"
_PATIENCE = 5.0
_PAUSE = 0.01


@dataclass(frozen=True, order=True)
class Claim:
    """The name under which a worker has a job's folder. A later claim is larger.

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
        """Read the name of a folder; None when it is none of ours."""
        found = _NAME.fullmatch(name)
        return cls(int(found[1]), int(found[2])) if found else None


def current_claim(base: Path) -> Claim | None:
    """Return the claim under which the job's folder is held now."""
    names = [path.name for path in base.iterdir()] if base.is_dir() else []
    claims = [claim for name in names if (claim := Claim.of(name)) is not None]
    return max((claim for claim in claims if has_ledger(base / claim.name)), default=None)


def has_ledger(folder: Path) -> bool:
    """Whether a folder is the job's: its holder has not been superseded."""
    return (folder / _LEDGER).is_dir()


def is_emptied(folder: Path) -> bool:
    """Whether a folder is about to be emptied: what is in it is forgotten, and not removed yet."""
    return any(folder.glob(f"{_EMPTYING}*"))


def take_over(
    base: Path,
    claim: Claim,
    *,
    fresh: bool = False,
    forget: int | None = None,
    patience: float = _PATIENCE,
) -> Path:
    """Make the job's folder this worker's own, and return it.

    ``fresh`` forgets what revisions up to ``forget``, or all before this one, have done; what an earlier
    attempt of this revision has done stays. Raises SupersededError when a later worker has the folder,
    JobFailedError when a folder that was there is gone.
    """
    own = base / claim.name
    deadline = time.monotonic() + patience
    while True:
        holder = current_claim(base)
        if holder is None:
            # A list that is read while a folder is renamed may lack it: look again before saying so.
            if not _has_begun(base):
                _begin(base)
            elif time.monotonic() < deadline:
                time.sleep(_PAUSE)
            elif not fresh:
                raise JobFailedError(
                    f"the job's folder in {base} is gone: put it back, or start from scratch (--fresh)"
                )
            else:
                _put_away(base)
            continue
        deadline = time.monotonic() + patience
        if holder > claim:
            raise SupersededError(f"{base / holder.name} belongs to a later worker than {claim.name}")
        if holder == claim:
            raise JobFailedError(f"{own} is in use: a worker of the same number has been started before")
        if fresh and holder.revision <= (claim.revision - 1 if forget is None else forget):
            # Noted before the rename, so that whoever comes after a crash knows what to finish.
            with suppress(FileNotFoundError):
                (base / holder.name / _emptying(claim)).touch(mode=0o600)
        try:
            (base / holder.name).rename(own)
        except FileNotFoundError:
            continue  # another worker was faster
        break
    _settle_down(base, holder, claim)
    return own


def _has_begun(base: Path) -> bool:
    """Whether a job has had a folder: from then on none is made, it is only taken over."""
    try:
        return any(base.iterdir())
    except FileNotFoundError:
        return False


def _begin(base: Path) -> None:
    """Create the place of a job together with its first folder, by one rename, so that two workers never both
    create it.
    """
    base.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    staged = _beside(base)
    for folder in (staged, staged / _FIRST, staged / _FIRST / _LEDGER):
        folder.mkdir(mode=0o700)
    try:
        staged.rename(base)
    except OSError as error:
        shutil.rmtree(staged, ignore_errors=True)
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # Else another worker was faster.
            raise


def _put_away(base: Path) -> None:
    """Clear the place of a job whose folder is gone, and that shall start from scratch."""
    away = _beside(base)
    with suppress(FileNotFoundError):
        base.rename(away)
        shutil.rmtree(away, ignore_errors=True)


def _beside(base: Path) -> Path:
    return base.with_name(f".{base.name}.{uuid4().hex}")


def _settle_down(base: Path, holder: Claim, claim: Claim) -> None:
    """Make a folder that was just taken over ready for its new holder."""
    own = base / claim.name
    with suppress(FileNotFoundError):  # A later worker may take it over at once.
        # The lock of the former holder stays with it, and with the file that nobody will find any more.
        (own / _LOCK).unlink(missing_ok=True)
        # A former holder of the revision that began to empty it may have died over it.
        if any((own / _emptying(one)).exists() for one in (holder, claim)):
            _empty(own)
        for note in own.glob(f"{_EMPTYING}*"):
            note.unlink(missing_ok=True)
        # The ledger says where to go on; Spark's notes may be of a batch that a pause has cut in two.
        shutil.rmtree(own / "checkpoint", ignore_errors=True)
    _remove_orphans(base, claim)
    if not has_ledger(own):
        raise SupersededError(f"{own} was taken over by a later worker at once")


def _emptying(claim: Claim) -> str:
    return f"{_EMPTYING}{claim.revision:06d}"


def _empty(own: Path) -> None:
    """Remove all that a job has done, and keep the notes that this is to be done."""
    for path in sorted(own.iterdir()):
        if path.name == _LEDGER:
            for entry in sorted(path.iterdir()):
                entry.unlink(missing_ok=True)
        elif path.is_dir():
            shutil.rmtree(path)
        elif not path.name.startswith(_EMPTYING):
            path.unlink(missing_ok=True)


def _remove_orphans(base: Path, claim: Claim) -> None:
    """Remove what former holders have made at their old paths since."""
    for path in sorted(base.iterdir()):
        other = Claim.of(path.name)
        if other is not None and other < claim and not has_ledger(path):
            shutil.rmtree(path, ignore_errors=True)
