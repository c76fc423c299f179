"""Brings a replica to the batch of another one.

Either it copies the files of that replica's newest batch, or it begins without state with the next window.
The files that a ledger entry names are written once and removed some batches later, so a copy is complete if
all of them still existed. The ledger entry of the copy is written last: a folder with an interrupted copy has
no batch. A replica that joined without state takes part in decisions once all windows that were open when it
joined have closed (seed 002, 4.2).
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from uuid import uuid4

from penstock.engine.blueprint import Blueprint
from penstock.engine.storage.job_folder import JobFolders, current_claim, is_emptied
from penstock.engine.storage.keyed_state import file_path, parent_of
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.engine.storage.serialization import damage_error, read_sealed, write_new, write_sealed
from penstock.engine.storage.shared_state_file import SharedFile
from penstock.engine.storage.state_chain import StateFile, StateHead
from penstock.engine.windows.watermarks import TimeProgress
from penstock.errors import JobFailedError, PenstockError, SupersededError
from penstock.graph.rules.replication_rules import lasting_state
from penstock.graph.windows import EVENT_TIME, PROCESSING_TIME, TimeWindow, result_time
from penstock.local_files import sync
from penstock.replicas.agreement.agreement_protocol import Commit

STRAYED = "strayed"
"""A file in the folder of a replica that has diverged and must not continue from its own state."""

_STAGED = "copying"
_BASE = ".base"
_TRIES = 50
_PAUSE = 0.01


class CopyError(PenstockError):
    """No snapshot of a replica can be copied now; a later attempt may succeed."""


class _ChangedError(Exception):
    """The folder of the other replica has changed during the copy, which must begin again."""


def last_batch(base: Path, *, after: int = 0) -> int:
    """Return the last batch of a replica that others could copy, -1 if there is none.

    ``base`` is the parent of its folders. Results of revisions up to ``after`` do not count, nor does a
    replica that has diverged or lacks state.
    """
    for _ in range(_TRIES):
        holder = current_claim(base)
        if holder is None or holder.revision <= after:
            return -1
        folder = base / holder.name
        try:
            if is_emptied(folder) or _is_unusable(folder):
                return -1
            return Ledger(folder / "ledger").latest_batch()
        except FileNotFoundError:
            time.sleep(_PAUSE)  # The folder was taken over in the meantime.
    return -1


def _is_unusable(folder: Path) -> bool:
    return (folder / STRAYED).exists() or JobFolders(str(folder)).state_incomplete.exists()


def clear_replica_folder(folders: JobFolders) -> None:
    """Remove all results of a replica; the ledger first and in order, so that a crash does no harm."""
    _check_held(folders)
    for path in sorted(folders.ledger.iterdir()):
        path.unlink(missing_ok=True)
    for folder in (folders.checkpoint, folders.state, folders.feedback, Path(folders.root) / _STAGED):
        shutil.rmtree(folder, ignore_errors=True)
    for file in (folders.structure, folders.state_incomplete, folders.digests_pending, folders.primary):
        file.unlink(missing_ok=True)
    folders.create()


def copy_snapshot(source: Path, into: JobFolders, look: Callable[[], None] = lambda: None) -> int:
    """Replace the state of a replica by the newest batch of another one; return that batch.

    ``source`` is the parent of the other replica's folders. ``look`` is called repeatedly, and may raise.
    Raises CopyError when there is nothing to copy, or when files are replaced faster than they can be copied.
    """
    clear_replica_folder(into)
    return Copier(into).copy(source, look)


def join_without_state(source: Path, into: JobFolders, look: Callable[[], None] = lambda: None) -> int:
    """Begin after the newest batch of another replica, without its state; return that batch.

    Only the event times of that batch are copied. Windows that begin after them will be complete.
    """
    clear_replica_folder(into)

    def take(folders: JobFolders) -> int:
        look()
        entry, structure = _newest(folders)
        into.state_incomplete.write_text(json.dumps(entry.times))
        if structure is not None:
            into.structure.write_bytes(structure)
        times = {**entry.times, "pending": {}} if entry.times else {}
        Ledger(into.ledger, synced=into.synced).replace(
            replace(entry, receipts={}, feedback=[], state={}, times=times)
        )
        return entry.batch

    return _retry_on_change(source, take)


def skip_to(commit: Commit, into: JobFolders) -> None:
    """Begin after a batch that others have committed, in a job that keeps no state between batches."""
    clear_replica_folder(into)
    receipts = {name: list(made) for name, made in commit.receipts.items()}
    entry = LedgerEntry(commit.batch, dict(commit.end), receipts, buckets=0)
    Ledger(into.ledger, synced=into.synced).replace(entry)


@dataclass(frozen=True)
class _Link:
    """A copied file of state, and the file that the chain of each bucket in it continues with."""

    path: Path
    parents: Mapping[int, StateFile | None]


class Copier:
    """Copies snapshots of other replicas into a folder; files that exist there are not copied again."""

    def __init__(self, into: JobFolders) -> None:
        self._into = into
        self._look: Callable[[], None] = lambda: None
        self._ledger = Ledger(into.ledger, synced=into.synced)
        self._links: dict[tuple[int | None, str], _Link] = {}
        """The state files that are known to exist here, by name and, unless they are shared, by bucket."""

    def copy(self, source: Path, look: Callable[[], None] = lambda: None) -> int:
        """Bring the folder to the newest batch of another replica, if that is newer; return the batch."""
        self._look = look
        _check_held(self._into)
        staged = Path(self._into.root) / _STAGED
        with suppress(FileExistsError):
            staged.mkdir(mode=0o700)
        try:
            return _retry_on_change(source, self._copy_once)
        except FileNotFoundError:
            _check_held(self._into)
            raise
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def _copy_once(self, source: JobFolders) -> int:
        own = self._ledger.latest_batch()
        uncounted = source.state_incomplete.exists() or source.digests_pending.exists()
        entry, structure = _newest(source)
        if entry.batch <= own:
            return own
        for name in entry.feedback:  # The other replica removes these first, so copy them first.
            self._copy_file(source.feedback / name, self._into.feedback / name)
        kept = {self._into.feedback / name for name in entry.feedback}
        for bucket, head in sorted(entry.state.items()):
            kept |= self._copy_chain(source.state, bucket, head)
        if _is_unusable(Path(source.root)):
            raise CopyError(f"{source.root} lacks the state from before its replica joined, or has diverged")
        if structure is not None:
            self._put(structure, self._into.structure)
        if uncounted and not entry.digests:
            self._into.digests_pending.touch(mode=0o600)
        else:
            self._into.digests_pending.unlink(missing_ok=True)
        self._ledger.replace(entry)
        self._remove_unneeded(kept)
        return entry.batch

    def _copy_chain(self, source: Path, bucket: int, head: StateHead) -> set[Path]:
        """Copy the state of a bucket, from its newest file back to its base; return the paths."""
        paths: set[Path] = set()
        file: StateFile | None = head.newest
        while file is not None:
            name = (None if file.shared else bucket, file.name)
            link = self._links.get(name)
            if link is None:
                link = self._links[name] = self._copy_link(source, bucket, file)
            if bucket not in link.parents:
                raise damage_error(link.path, f"it has no section of bucket {bucket}")
            paths.add(link.path)
            file = link.parents[bucket]
        return paths

    def _copy_link(self, source: Path, bucket: int, file: StateFile) -> _Link:
        """Copy one file of a chain."""
        own = file_path(self._into.state, bucket, file)
        own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.shared:
            self._copy_shared(file_path(source, bucket, file), own)
            with SharedFile(own) as copy:
                return _Link(own, {number: section.parent for number, section in copy.sections.items()})
        data = self._copy_file(file_path(source, bucket, file), own)
        if file.name.endswith(_BASE):
            return _Link(own, {bucket: None})
        return _Link(own, {bucket: parent_of(data if data is not None else read_sealed(own))})

    def _copy_file(self, source: Path, own: Path) -> bytes | None:
        """Copy a sealed file and return its data; None when it is there already."""
        self._look()
        if own.exists():
            return None
        with _removal_noticed(source):
            data = read_sealed(source)
        self._put(data, own, sealed=True)
        return data

    def _copy_shared(self, source: Path, own: Path) -> None:
        """Copy a shared file of the state, unless it is there already."""
        self._look()
        if not own.exists():
            with _removal_noticed(source), SharedFile(source) as file:
                content = file.read_whole()
            self._put(content, own)

    def _put(self, data: bytes, own: Path, *, sealed: bool = False) -> None:
        """Write a file atomically."""
        staged = Path(self._into.root) / _STAGED / uuid4().hex
        try:
            if sealed:
                write_sealed(staged, data, synced=self._into.synced)
            else:
                write_new(staged, data, synced=self._into.synced)
            staged.replace(own)
            if self._into.synced:
                sync(own.parent)
        except JobFailedError:
            _check_held(self._into)
            raise

    def _remove_unneeded(self, kept: set[Path]) -> None:
        """Remove files that only earlier batches needed."""
        self._ledger.trim(1)
        for folder in (self._into.feedback, *sorted(self._into.state.iterdir())):
            for path in sorted(folder.iterdir()):
                if path not in kept:
                    path.unlink(missing_ok=True)
        self._links = {name: link for name, link in self._links.items() if link.path in kept}


@contextmanager
def _removal_noticed(source: Path) -> Iterator[None]:
    """Raise _ChangedError if a file cannot be read because it was removed meanwhile."""
    try:
        yield
    except JobFailedError:
        if not source.exists():
            raise _ChangedError from None
        raise


def _newest(source: JobFolders) -> tuple[LedgerEntry, bytes | None]:
    """Return the newest entry of a ledger, and the structure of the job that made it."""
    ledger = Ledger(source.ledger)
    try:
        batch = ledger.latest_batch()
    except FileNotFoundError:
        raise _ChangedError from None
    if batch < 0:
        raise CopyError(f"{source.root} has no batch to copy yet")
    structure: bytes | None = None
    with suppress(FileNotFoundError):
        structure = source.structure.read_bytes()
    entry = ledger.read(batch)
    if entry is None:
        raise _ChangedError
    return entry, structure


def _retry_on_change(source: Path, take: Callable[[JobFolders], int]) -> int:
    """Call ``take`` with the current folder of another replica, again if the folder changes."""
    for _ in range(_TRIES):
        holder = current_claim(source)
        if holder is None and not source.exists():
            raise CopyError(f"{source} does not exist: that replica has never run")
        if holder is not None:
            with suppress(_ChangedError):
                try:
                    return take(JobFolders(str(source / holder.name)))
                except JobFailedError as error:
                    raise CopyError(f"the snapshot cannot be used: {error}") from error
        time.sleep(_PAUSE)
    raise CopyError(f"the files in {source} changed during each of {_TRIES} attempts to copy them")


def _check_held(into: JobFolders) -> None:
    if not into.ledger.is_dir():
        raise SupersededError(f"{into.root} no longer exists: another worker has taken over the replica")


def complete_from(blueprint: Blueprint, joined: TimeProgress) -> dict[str, float]:
    """Return for each vertex with time windows the watermark from which on all its windows are complete.

    That is the end of the last window that had begun when the replica joined, given the event times
    ``joined`` of the others; minus infinity if none had begun.
    """
    seen: dict[int, float] = {}
    for timed in blueprint.plan.timed:
        _last_seen(blueprint, joined, timed.vertex, seen)
    found = {}
    for vertex, last in seen.items():
        window = blueprint.vertices[vertex].window
        if isinstance(window, TimeWindow):
            found[blueprint.vertices[vertex].name] = _end(window, last)
    return found


def is_complete(blueprint: Blueprint, joined: TimeProgress, now: TimeProgress) -> bool:
    """Return whether a replica that joined without state has the same results as the others from now on.

    ``now`` are its event times after its last batch, in which incomplete windows may still have been closed.
    It is never true for a job with state that outlives its time windows.
    """
    if not _ends_with_time(blueprint):
        return False
    return all(now.marks.get(name, -inf) >= mark for name, mark in complete_from(blueprint, joined).items())


def _ends_with_time(blueprint: Blueprint) -> bool:
    """Return whether all state of a job is removed at the end of a time window."""
    plan = blueprint.plan
    if plan.loops or plan.native.feedback:
        return False
    behind = [blueprint.vertices[exchange.target] for exchange in plan.exchanges if exchange.feedback]
    return all(getattr(spec.window, "time", None) == EVENT_TIME for spec in behind) and all(
        lasting_state(spec.operator, spec.window, sync=spec.sync) is None for spec in blueprint.vertices
    )


def _last_seen(blueprint: Blueprint, joined: TimeProgress, vertex: int, seen: dict[int, float]) -> float:
    """Return the time up to which a vertex may lack records or get wrong ones in the joined replica."""
    if vertex in seen:
        return seen[vertex]
    spec = blueprint.vertices[vertex]
    timed = next(timed for timed in blueprint.plan.timed if timed.vertex == vertex)
    if isinstance(spec.window, TimeWindow) and spec.window.time == PROCESSING_TIME:
        seen[vertex] = joined.now if joined.marks else -inf
        return seen[vertex]
    last = max((high for high, _ in joined.highs.get(spec.name, {}).values()), default=-inf)
    for upstream in timed.upstream:
        reached = _last_seen(blueprint, joined, upstream, seen)
        window = blueprint.vertices[upstream].window
        if isinstance(window, TimeWindow) and reached > -inf:
            # Incomplete windows emit results as well, with times up to this one.
            index = window.last(reached)
            reached = result_time(index * window.slide, window.end(index))
        last = max(last, reached)
    seen[vertex] = last
    return last


def _end(window: TimeWindow, last: float) -> float:
    """Return the end of the last window that has begun by a time."""
    return window.end(window.last(last)) if abs(last) < inf else last
