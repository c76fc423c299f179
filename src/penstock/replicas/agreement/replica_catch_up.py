"""Brings a replica to the batch of another one.

By copying what its newest batch consists of, or without state from the next window on. What a ledger entry
names is written once and only removed some batches later, so a copy is complete when every file that the
entry names was still there. The own entry is written last: an interrupted copy is a folder without history.
A replica that joined without state takes part in decisions once all windows that were open when it joined
have closed (seed 002, 4.2).
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from uuid import uuid4

from penstock.engine.blueprint import Blueprint
from penstock.engine.storage.job_folder import JobFolders, current_claim, is_emptied
from penstock.engine.storage.keyed_state import parent_of
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.engine.storage.serialization import read_sealed, write_sealed
from penstock.engine.windows.watermarks import TimeProgress
from penstock.errors import JobFailedError, PenstockError, SupersededError
from penstock.graph.rules.replication_rules import lasting_state
from penstock.graph.windows import EVENT_TIME, PROCESSING_TIME, TimeWindow, result_time
from penstock.local_files import sync
from penstock.replicas.agreement.agreement_protocol import Commit

STRAYED = "strayed"
"""A file in the folder of a replica that must not go on from what is in it."""

_STAGED = "copying"
_BASE = ".base"
_TRIES = 50
_PAUSE = 0.01


class CopyError(PenstockError):
    """No snapshot of a replica can be copied now. It is not hurt, and a later try may do better."""


class _GoneError(Exception):
    """The other replica has gone on meanwhile, or its folder was taken over: begin again."""


def last_batch(base: Path, *, after: int = 0) -> int:
    """Return the last batch of a replica that others could go on from, -1 if there is none.

    ``base`` is the place of its folders. What revisions up to ``after`` have done is forgotten; a replica
    that has strayed, or lacks what came before it joined, is no help to others.
    """
    for _ in range(_TRIES):
        holder = current_claim(base)
        if holder is None or holder.revision <= after:
            return -1
        folder = base / holder.name
        try:
            if is_emptied(folder) or _is_no_help(folder):
                return -1
            return Ledger(folder / "ledger").latest_batch()
        except FileNotFoundError:
            time.sleep(_PAUSE)  # It was taken over while we looked.
    return -1


def _is_no_help(folder: Path) -> bool:
    return (folder / STRAYED).exists() or JobFolders(str(folder)).state_incomplete.exists()


def clear_replica_folder(folders: JobFolders) -> None:
    """Remove all that a replica has done; the ledger first and in order, so that a crash leaves no half."""
    _check_held(folders)
    for path in sorted(folders.ledger.iterdir()):
        path.unlink(missing_ok=True)
    for folder in (folders.checkpoint, folders.state, folders.feedback, Path(folders.root) / _STAGED):
        shutil.rmtree(folder, ignore_errors=True)
    for file in (folders.structure, folders.state_incomplete, folders.digests_pending, folders.primary):
        file.unlink(missing_ok=True)
    folders.create()


def copy_snapshot(source: Path, into: JobFolders, look: Callable[[], None] = lambda: None) -> int:
    """Replace all that a replica has by what the newest batch of another consists of; return that batch.

    ``source`` is the place of the other's folders. ``look`` is called again and again, and may raise. Raises
    CopyError when the other has nothing to copy, or goes on faster than it can be copied.
    """
    clear_replica_folder(into)
    return Copier(into).copy(source, look)


def join_without_state(source: Path, into: JobFolders, look: Callable[[], None] = lambda: None) -> int:
    """Begin after the newest batch of another replica, without its state; return that batch.

    Only the times of that batch are kept. Windows that begin after them will be complete.
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

    return _persistently(source, take)


def skip_to(commit: Commit, into: JobFolders) -> None:
    """Begin after a batch that others have committed, in a job that keeps nothing from batch to batch."""
    clear_replica_folder(into)
    entry = LedgerEntry(
        commit.batch, dict(commit.end), {name: list(r) for name, r in commit.receipts.items()}
    )
    Ledger(into.ledger, synced=into.synced).replace(entry)


class Copier:
    """Copies snapshots of other replicas into a folder; a file that is there it does not copy again."""

    def __init__(self, into: JobFolders) -> None:
        self._into = into
        self._look: Callable[[], None] = lambda: None
        self._ledger = Ledger(into.ledger, synced=into.synced)
        self._parents: dict[Path, str | None] = {}
        """By file of the state, the one that it goes on from: of those that are there for sure."""

    def copy(self, source: Path, look: Callable[[], None] = lambda: None) -> int:
        """Bring the folder to the newest batch of another replica, unless it has come as far; return it."""
        self._look = look
        _check_held(self._into)
        staged = Path(self._into.root) / _STAGED
        with suppress(FileExistsError):
            staged.mkdir(mode=0o700)
        try:
            return _persistently(source, self._try)
        except FileNotFoundError:
            _check_held(self._into)
            raise
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def _try(self, source: JobFolders) -> int:
        own = self._ledger.latest_batch()
        uncounted = source.state_incomplete.exists() or source.digests_pending.exists()
        entry, structure = _newest(source)
        if entry.batch <= own:
            return own
        for name in entry.feedback:  # These go first, so they are taken first.
            self._bring(source.feedback / name, self._into.feedback / name)
        kept = set(entry.feedback)
        for bucket, head in sorted(entry.state.items()):
            kept |= self._bring_chain(source.state / f"{bucket:05d}", bucket, head.file)
        if _is_no_help(Path(source.root)):
            raise CopyError(f"{source.root} lacks what came before its replica joined, or has strayed")
        if structure is not None:
            self._put(structure, self._into.structure)
        if uncounted and not entry.digests:
            self._into.digests_pending.touch(mode=0o600)
        else:
            self._into.digests_pending.unlink(missing_ok=True)
        self._ledger.replace(entry)
        self._tidy(kept)
        return entry.batch

    def _bring_chain(self, source: Path, bucket: int, newest: str) -> set[str]:
        """Copy the state of a bucket, from its newest file back to its base; return the names."""
        folder = self._into.state / f"{bucket:05d}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names: set[str] = set()
        name: str | None = newest
        while name is not None:
            names.add(name)
            own = folder / name
            if own not in self._parents:
                data = self._bring(source / name, own)
                self._parents[own] = None if name.endswith(_BASE) else parent_of(data or read_sealed(own))
            name = self._parents[own]
        return names

    def _bring(self, source: Path, own: Path) -> bytes | None:
        """Copy a sealed file and return its data; None when it is there already."""
        self._look()
        if own.exists():
            return None
        try:
            data = read_sealed(source)
        except JobFailedError:
            if not source.exists():
                raise _GoneError from None
            raise
        self._put(data, own, sealed=True)
        return data

    def _put(self, data: bytes, own: Path, *, sealed: bool = False) -> None:
        """Let a file appear as a whole."""
        staged = Path(self._into.root) / _STAGED / uuid4().hex
        try:
            if sealed:
                write_sealed(staged, data, synced=self._into.synced)
            else:
                staged.write_bytes(data)
                staged.chmod(0o600)
            staged.replace(own)
            if self._into.synced:
                sync(own.parent)
        except JobFailedError:
            _check_held(self._into)
            raise

    def _tidy(self, kept: set[str]) -> None:
        """Remove what only batches before needed."""
        self._ledger.trim(1)
        for folder in (self._into.feedback, *sorted(self._into.state.iterdir())):
            for path in sorted(folder.iterdir()):
                if path.name not in kept:
                    path.unlink(missing_ok=True)
                    self._parents.pop(path, None)


def _newest(source: JobFolders) -> tuple[LedgerEntry, bytes | None]:
    """Return the newest entry of a ledger, and the structure of the job that made it."""
    ledger = Ledger(source.ledger)
    try:
        batch = ledger.latest_batch()
    except FileNotFoundError:
        raise _GoneError from None
    if batch < 0:
        raise CopyError(f"{source.root} has no batch to go on from yet")
    structure: bytes | None = None
    with suppress(FileNotFoundError):
        structure = source.structure.read_bytes()
    entry = ledger.read(batch)
    if entry is None:
        raise _GoneError
    return entry, structure


def _persistently(source: Path, take: Callable[[JobFolders], int]) -> int:
    """Take something from the folder of another replica, wherever that is by now."""
    for _ in range(_TRIES):
        holder = current_claim(source)
        if holder is None and not source.exists():
            raise CopyError(f"{source} is not there: that replica has never begun")
        if holder is not None:
            with suppress(_GoneError):
                try:
                    return take(JobFolders(str(source / holder.name)))
                except JobFailedError as error:
                    raise CopyError(f"the snapshot cannot be used: {error}") from error
        time.sleep(_PAUSE)
    raise CopyError(f"what is in {source} changed {_TRIES} times while it was copied")


def _check_held(into: JobFolders) -> None:
    if not into.ledger.is_dir():
        raise SupersededError(f"{into.root} is gone: another worker has taken the replica over")


def complete_from(blueprint: Blueprint, joined: TimeProgress) -> dict[str, float]:
    """Return, by vertex with windows of time, the mark from which on all of its windows are whole.

    That is the end of the last window that had begun when the replica joined, with ``joined`` as what the
    others knew of time; minus infinity when none had.
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
    """Whether a replica that has joined without state gives, from the next batch on, what the others give.

    ``now`` is what it knows of time after its last batch. In that batch, windows may have been closed that
    were not whole. A job that remembers what no window of time ends never is.
    """
    if not _ends_with_time(blueprint):
        return False
    return all(now.marks.get(name, -inf) >= mark for name, mark in complete_from(blueprint, joined).items())


def _ends_with_time(blueprint: Blueprint) -> bool:
    """Whether all that a job remembers is forgotten with the end of a window of time."""
    plan = blueprint.plan
    if plan.loops or plan.native.feedback:
        return False
    behind = [blueprint.vertices[exchange.target] for exchange in plan.exchanges if exchange.feedback]
    return all(getattr(spec.window, "time", None) == EVENT_TIME for spec in behind) and all(
        lasting_state(spec.operator, spec.window, sync=spec.sync) is None for spec in blueprint.vertices
    )


def _last_seen(blueprint: Blueprint, joined: TimeProgress, vertex: int, seen: dict[int, float]) -> float:
    """Return up to which time a vertex may have got records that the replica lacks, or gets wrong ones."""
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
            # Windows that are not whole still give results, and those have times up to here.
            index = window.last(reached)
            reached = result_time(index * window.slide, window.end(index))
        last = max(last, reached)
    seen[vertex] = last
    return last


def _end(window: TimeWindow, last: float) -> float:
    """Return the end of the last window that has begun at a time."""
    return window.end(window.last(last)) if abs(last) < inf else last
