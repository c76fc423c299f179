"""Repartitions keyed state and records in transit in one atomic step.

This is needed when the number of buckets changes, or the version of the key hash.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

from penstock.engine.blueprint import Blueprint, VertexSpec
from penstock.engine.execution.native_outbox import SUFFIX
from penstock.engine.execution.parcels import repartition_parcel
from penstock.engine.execution.partial_results import can_merge
from penstock.engine.storage.job_folder import JobFolders
from penstock.engine.storage.keyed_state import (
    StateReader,
    States,
    StateWriter,
    file_path,
    is_waiting,
    owner_of,
    vertex_of,
)
from penstock.engine.storage.ledger import Ledger, LedgerEntry, remove_leftovers
from penstock.engine.storage.serialization import pack, read_sealed, unpack, write_sealed
from penstock.engine.storage.state_chain import StateHead
from penstock.engine.windows.watermarks import TimeProgress
from penstock.errors import IncompatibleJobError, cause_of, shorten
from penstock.graph.tasks import CombiningTask
from penstock.graph.windows import CountWindow
from penstock.key_hash import VERSION, key_hash


def change_buckets(
    folders: JobFolders, last: LedgerEntry, buckets: int, blueprint: Blueprint | None = None
) -> LedgerEntry:
    """Repartition all keyed state and all records in transit to a number of buckets.

    The ledger entry is replaced atomically: a crash before that leaves everything unchanged. States of keys
    that are equal now, but were different for an earlier version of the hash, are merged by the vertices of
    ``blueprint``; raises IncompatibleJobError if they cannot be merged.
    """
    attempt = uuid4().hex
    move = _Migration(folders, buckets, blueprint)
    with StateReader(folders.state) as reader:
        for bucket, head in sorted(last.state.items()):
            for section, held in reader.read_bucket(bucket, head).items():
                for key, state in held.items():
                    move.add(section, key, state)
    # Records for vertices in Spark belong to no bucket.
    feedback = [name for name in last.feedback if name.endswith(SUFFIX)]
    parcels = [
        part
        for name in last.feedback
        if not name.endswith(SUFFIX)
        for _, parcel in unpack(read_sealed(folders.feedback / name))[0]
        for part in repartition_parcel(parcel, buckets, move.place)
    ]
    heads = move.write(last.batch, attempt)
    if parcels:
        name = f"{last.batch:012d}-{attempt}"
        write_sealed(folders.feedback / name, pack((parcels,)), synced=folders.synced)
        feedback.append(name)
    times = {**last.times, "pending": _pending_in_all_buckets(last, buckets)} if last.times else {}
    entry = replace(
        last,
        state=heads,
        feedback=feedback,
        buckets=buckets,
        default_instances=last.default_instances or last.buckets,
        times=times,
        keys=VERSION,
    )
    Ledger(folders.ledger, synced=folders.synced).replace(entry)
    _remove_old_files(folders, entry)
    return entry


class _Migration:
    """The state of all buckets while it is repartitioned."""

    def __init__(self, folders: JobFolders, buckets: int, blueprint: Blueprint | None) -> None:
        self._folders = folders
        self._buckets = buckets
        self._job = "" if blueprint is None else f"job {blueprint.job!r}: "
        self._specs = {} if blueprint is None else {spec.name: spec for spec in blueprint.vertices}
        self.states: list[States] = [{} for _ in range(buckets)]

    def add(self, section: str, key: Any, state: Any) -> None:
        """Add an entry of a section to its bucket; merges it with the entry of an equal key."""
        owner = owner_of(section, key)
        held = self.states[self.place(vertex_of(section), owner)].setdefault(section, {})
        if key in held:
            state = self._merged_state(section, owner, held[key], state)
        held[key] = state

    def place(self, vertex: str, key: Any) -> int:
        """Return the bucket of a key."""
        try:
            return key_hash(key) % self._buckets
        except Exception as error:
            # Earlier versions accepted keys that are not equal to themselves, and lost their state.
            raise IncompatibleJobError(
                f"{self._job}{self._folders.root} has data of vertex {vertex!r} under the invalid key"
                f" {shorten(key)}: {cause_of(error)}. Start from scratch with fresh=True (--fresh), and give"
                " such records another key"
            ) from None

    def write(self, batch: int, attempt: str) -> dict[int, StateHead]:
        """Write all buckets as of a batch, and return their heads."""
        writer = StateWriter(self._folders.state, batch, attempt, synced=self._folders.synced)
        try:
            for bucket, states in enumerate(self.states):
                if states:
                    writer.add_base(bucket, states)
            return writer.finish()
        finally:
            writer.discard()

    def _merged_state(self, section: str, key: Any, one: Any, other: Any) -> Any:
        vertex = vertex_of(section)
        spec = self._specs.get(vertex)
        join = None if spec is None else _merge_function(spec, waits=is_waiting(section))
        reason = "and this vertex cannot merge their states"
        if join is not None:
            try:
                return join(one, other)
            except Exception as error:
                reason = f"and merging their states failed: {cause_of(error)}"
        raise IncompatibleJobError(
            f"{self._job}{self._folders.root} has two states of vertex {vertex!r} for the key {shorten(key)}:"
            " the version of Penstock that wrote them did not recognise some keys as equal, such as a"
            f" PosixPath and a PurePosixPath. They are one key now, {reason}. Start from scratch with"
            " fresh=True (--fresh), or continue with the version that wrote them"
        ) from None


def _merge_function(spec: VertexSpec, *, waits: bool) -> Callable[[Any, Any], Any] | None:
    """Return the function that merges two states of equal keys of a vertex; None if there is none."""
    task = spec.operator
    if not waits:
        plain = isinstance(task, CombiningTask) and type(task).update is CombiningTask.update
        return task.merge if plain else None
    if isinstance(spec.window, CountWindow):
        return None  # Each state has counted its own records.
    if can_merge(spec):
        merge: Callable[[Any, Any], Any] = task.merge
        return merge
    return lambda one, other: one + other  # Waiting records of one lane or port and one batch.


def _pending_in_all_buckets(last: LedgerEntry, buckets: int) -> dict[str, dict[str, float]]:
    """Return pending windows as if every bucket held the earliest one; each bucket corrects its own later."""
    earliest = TimeProgress.of(last.times).earliest
    return {str(bucket): earliest for bucket in range(buckets)} if earliest else {}


def _remove_old_files(folders: JobFolders, entry: LedgerEntry) -> None:
    """Remove all files of state except the heads, which are all bases here."""
    kept = {file_path(folders.state, bucket, head.newest) for bucket, head in entry.state.items()}
    for folder in folders.state.iterdir():
        for file in folder.iterdir():
            if file not in kept:
                file.unlink()
    remove_leftovers(folders, entry)
