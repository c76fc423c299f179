"""How a job goes on from where it was: other numbers of buckets, batches given up, files left over."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.engine.blueprint import Blueprint, JobFolders, VertexSpec
from penstock.engine.clock import TimeProgress
from penstock.engine.exchange import DEALT, can_merge
from penstock.engine.ledger import Intent, Ledger, LedgerEntry
from penstock.engine.natives import SUFFIX
from penstock.engine.packing import pack, unpack
from penstock.engine.sealed import read_sealed, write_sealed
from penstock.engine.state import States, is_waiting, owner_of, read_bucket, vertex_of, write_base
from penstock.errors import IncompatibleJobError, cause_of, shorten
from penstock.graph.tasks import CombiningTask
from penstock.graph.windows import CountWindow
from penstock.keys import VERSION, key_hash


def given_up_entry(last: LedgerEntry | None, intent: Intent | None) -> LedgerEntry | None:
    """Return the entry of a batch that was begun, never ended, and must not be begun again; None if none.

    Its records are lost, and those that were on their way into it. All else is as before it.
    """
    done = last.batch if last is not None else -1
    # Version 0.1.0 noted such an intent of a batch that read nothing, too: nothing of it was ever begun.
    if intent is None or intent.batch != done + 1 or intent.end["batch"] <= intent.batch:
        return None
    if last is None:
        return LedgerEntry(intent.batch, intent.end, buckets=intent.buckets)
    return replace(last, batch=intent.batch, end=intent.end, receipts={}, feedback=[])


def mended(last: LedgerEntry) -> LedgerEntry:
    """Return an entry as it should have been written.

    Version 0.1.0 could give up, at most once, a batch that read nothing, with an end before itself: no batch
    could follow it.
    """
    if last.end["batch"] > last.batch:
        return last
    return replace(last, end={**last.end, "batch": last.batch + 1})


def change_buckets(
    folders: JobFolders, last: LedgerEntry, buckets: int, blueprint: Blueprint | None = None
) -> LedgerEntry:
    """Deal all keyed state and all records under way out to another number of buckets, or to the same anew.

    The batch's ledger entry is replaced in one step: a crash before it leaves everything as it was. Keys that
    are equal now and were not for an earlier version are put together as the vertices of ``blueprint`` do it;
    raises IncompatibleJobError where that cannot be done.
    """
    attempt = uuid4().hex
    move = _Move(folders, buckets, blueprint)
    for bucket, head in sorted(last.state.items()):
        for section, held in read_bucket(folders.state, bucket, head).items():
            for key, state in held.items():
                move.add(section, key, state)
    # What goes to vertices of Spark's own is in no bucket.
    feedback = [name for name in last.feedback if name.endswith(SUFFIX)]
    parcels = [
        part
        for name in last.feedback
        if not name.endswith(SUFFIX)
        for _, parcel in unpack(read_sealed(folders.feedback / name))[0]
        for part in deal_parcel(parcel, buckets, move.place)
    ]
    heads = {
        bucket: write_base(folders.state, bucket, states, last.batch, attempt, synced=folders.synced)
        for bucket, states in enumerate(move.dealt)
        if states
    }
    if parcels:
        name = f"{last.batch:012d}-{attempt}"
        write_sealed(folders.feedback / name, pack((parcels,)), synced=folders.synced)
        feedback.append(name)
    times = {**last.times, "pending": _anywhere(last, buckets)} if last.times else {}
    entry = replace(last, state=heads, feedback=feedback, buckets=buckets, times=times, keys=VERSION)
    Ledger(folders.ledger, synced=folders.synced).replace(entry)
    _remove_others(folders, entry)
    return entry


class _Move:
    """State on its way to other buckets."""

    def __init__(self, folders: JobFolders, buckets: int, blueprint: Blueprint | None) -> None:
        self._folders = folders
        self._buckets = buckets
        self._job = "" if blueprint is None else f"job {blueprint.job!r}: "
        self._specs = {} if blueprint is None else {spec.name: spec for spec in blueprint.vertices}
        self.dealt: list[States] = [{} for _ in range(buckets)]

    def add(self, section: str, key: Any, state: Any) -> None:
        """Take an entry of a section to its bucket, and put it together with one of an equal key there."""
        owner = owner_of(section, key)
        held = self.dealt[self.place(vertex_of(section), owner)].setdefault(section, {})
        if key in held:
            state = self._joined(section, owner, held[key], state)
        held[key] = state

    def place(self, vertex: str, key: Any) -> int:
        """Return the bucket of a key."""
        try:
            return key_hash(key) % self._buckets
        except Exception as error:
            # Earlier versions let keys in that are equal to nothing, and found none of them again.
            raise IncompatibleJobError(
                f"{self._job}{self._folders.root} has something of vertex {vertex!r} under the key"
                f" {shorten(key)}: {cause_of(error)}. Start from scratch with fresh=True (--fresh), and give"
                " such records another key"
            ) from None

    def _joined(self, section: str, key: Any, one: Any, other: Any) -> Any:
        vertex = vertex_of(section)
        spec = self._specs.get(vertex)
        join = None if spec is None else _joining(spec, waits=is_waiting(section))
        reason = "and nobody knows what the state of both is"
        if join is not None:
            try:
                return join(one, other)
            except Exception as error:
                reason = f"and what it has for both cannot be put together: {cause_of(error)}"
        raise IncompatibleJobError(
            f"{self._job}{self._folders.root} has two states of vertex {vertex!r} for the key {shorten(key)}:"
            " the version of Penstock that wrote them told keys apart that are equal in Python, such as a"
            f" PosixPath and a PurePosixPath. They are one key now, {reason}. Start from scratch with"
            " fresh=True (--fresh), or go on with the version that wrote them"
        ) from None


def _joining(spec: VertexSpec, *, waits: bool) -> Callable[[Any, Any], Any] | None:
    """Return how two states of equal keys of a vertex become one; None if that is not known."""
    task = spec.operator
    if not waits:
        plain = isinstance(task, CombiningTask) and type(task).update is CombiningTask.update
        return task.merge if plain else None
    if isinstance(spec.window, CountWindow):
        return None  # Each of them has counted its records for itself.
    if can_merge(spec):
        merge: Callable[[Any, Any], Any] = task.merge
        return merge
    return lambda one, other: one + other  # Records that wait, of one lane or port and one batch.


def _anywhere(last: LedgerEntry, buckets: int) -> dict[str, dict[str, float]]:
    """Say of every bucket that the earliest window may be in it; each will find out when it looks."""
    earliest = TimeProgress.of(last.times).earliest
    return {str(bucket): earliest for bucket in range(buckets)} if earliest else {}


def deal_parcel(parcel: bytes, buckets: int, place: Callable[[str, Any], int]) -> list[tuple[int, bytes]]:
    """Divide a parcel by key into one for each bucket that it concerns."""
    form, name, port, counters, cell, lane, keys, *columns = unpack(parcel)
    if form == DEALT:
        return [(cell % buckets, parcel)]
    if form == "groups":
        sizes, flat, times = columns
        values, start = [], 0
        for size in sizes:
            values.append(flat[start : start + size])
            start += size
        columns = [values, times or [None] * len(keys)]
    rows: dict[int, list[tuple[Any, ...]]] = {}
    for row in zip(keys, *columns, strict=True):
        rows.setdefault(place(name, row[0]), []).append(row)
    dealt = []
    for bucket, its_rows in sorted(rows.items()):
        its_keys, *its_columns = (list(column) for column in zip(*its_rows, strict=True))
        if form == "groups":
            lists, times = its_columns
            flat = [value for values in lists for value in values]
            its_columns = [[len(values) for values in lists], flat, times]
        dealt.append((bucket, pack((form, name, port, counters, cell, lane, its_keys, *its_columns))))
    return dealt


def remove_leftovers(folders: JobFolders, last: LedgerEntry | None) -> None:
    """Remove what attempts have written that were never committed. Only for a job that does not run."""
    done = last.batch if last is not None else -1
    for bucket in os.listdir(folders.state):
        for file in os.listdir(folders.state / bucket):
            if int(file.partition("-")[0]) > done:
                (folders.state / bucket / file).unlink()
    for file in os.listdir(folders.feedback):
        if last is None or file not in last.feedback:
            (folders.feedback / file).unlink()


def _remove_others(folders: JobFolders, entry: LedgerEntry) -> None:
    """Remove all state but the heads, where each of them is a base."""
    kept = {str(Path(f"{bucket:05d}") / head.file) for bucket, head in entry.state.items()}
    for bucket in os.listdir(folders.state):
        for file in os.listdir(folders.state / bucket):
            if str(Path(bucket) / file) not in kept:
                (folders.state / bucket / file).unlink()
    remove_leftovers(folders, entry)
