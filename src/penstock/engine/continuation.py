"""How a job goes on from where it was: other numbers of buckets, batches given up, files left over."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.engine.blueprint import Folders
from penstock.engine.clock import Times
from penstock.engine.exchange import DEALT
from penstock.engine.ledger import Entry, Intent, Ledger
from penstock.engine.natives import SUFFIX
from penstock.engine.packing import pack, unpack
from penstock.engine.sealed import read_sealed, write_sealed
from penstock.engine.state import States, owner_of, read_bucket, write_base
from penstock.errors import IncompatibleJobError
from penstock.keys import VERSION, UnequalKeyError, key_hash


def skipped(last: Entry | None, intent: Intent | None) -> Entry | None:
    """Return the entry of a batch that was begun, never ended, and must not be begun again; None if none.

    Its records are lost, and those that were on their way into it. All else is as before it.
    """
    done = last.batch if last is not None else -1
    # Version 0.1.0 noted such an intent of a batch that read nothing, too: nothing of it was ever begun.
    if intent is None or intent.batch != done + 1 or intent.end["batch"] <= intent.batch:
        return None
    if last is None:
        return Entry(intent.batch, intent.end, buckets=intent.buckets)
    return replace(last, batch=intent.batch, end=intent.end, receipts={}, feedback=[])


def mended(last: Entry) -> Entry:
    """Return an entry as it should have been written.

    Version 0.1.0 could give up, at most once, a batch that read nothing, with an end before itself: no batch
    could follow it.
    """
    if last.end["batch"] > last.batch:
        return last
    return replace(last, end={**last.end, "batch": last.batch + 1})


def change_buckets(folders: Folders, last: Entry, buckets: int) -> Entry:
    """Deal all keyed state and all records under way out to another number of buckets, or to the same anew.

    The batch's ledger entry is replaced in one step: a crash before it leaves everything as it was.
    """
    attempt = uuid4().hex
    dealt: list[States] = [{} for _ in range(buckets)]
    for bucket, head in sorted(last.state.items()):
        for vertex, held in read_bucket(folders.state, bucket, head).items():
            for key, state in held.items():
                place = _place(folders, vertex, key, buckets)
                dealt[place].setdefault(vertex, {})[key] = state
    heads = {
        bucket: write_base(folders.state, bucket, states, last.batch, attempt, synced=folders.synced)
        for bucket, states in enumerate(dealt)
        if states
    }
    # What goes to vertices of Spark's own is in no bucket.
    feedback = [name for name in last.feedback if name.endswith(SUFFIX)]
    dealt_names = [name for name in last.feedback if not name.endswith(SUFFIX)]
    if dealt_names:
        parcels = [
            part
            for name in dealt_names
            for _, parcel in unpack(read_sealed(folders.feedback / name))[0]
            for part in deal_parcel(parcel, buckets)
        ]
        name = f"{last.batch:012d}-{attempt}"
        write_sealed(folders.feedback / name, pack((parcels,)), synced=folders.synced)
        feedback.append(name)
    times = {**last.times, "pending": _anywhere(last, buckets)} if last.times else {}
    entry = replace(last, state=heads, feedback=feedback, buckets=buckets, times=times, keys=VERSION)
    Ledger(folders.ledger, synced=folders.synced).replace(entry)
    _remove_others(folders, entry)
    return entry


def _place(folders: Folders, vertex: str, key: Any, buckets: int) -> int:
    try:
        return key_hash(owner_of(vertex, key)) % buckets
    except UnequalKeyError as error:
        # Version 0.1.0 let such keys in, and found none of them again.
        raise IncompatibleJobError(
            f"{folders.root} has state of vertex {vertex!r} under the key {key!r}: {error}. Start from"
            " scratch with fresh=True (--fresh), and give such records another key"
        ) from None


def _anywhere(last: Entry, buckets: int) -> dict[str, dict[str, float]]:
    """Say of every bucket that the earliest window may be in it; each will find out when it looks."""
    earliest = Times.of(last.times).earliest
    return {str(bucket): earliest for bucket in range(buckets)} if earliest else {}


def deal_parcel(parcel: bytes, buckets: int) -> list[tuple[int, bytes]]:
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
        rows.setdefault(key_hash(row[0]) % buckets, []).append(row)
    dealt = []
    for bucket, its_rows in sorted(rows.items()):
        its_keys, *its_columns = (list(column) for column in zip(*its_rows, strict=True))
        if form == "groups":
            lists, times = its_columns
            flat = [value for values in lists for value in values]
            its_columns = [[len(values) for values in lists], flat, times]
        dealt.append((bucket, pack((form, name, port, counters, cell, lane, its_keys, *its_columns))))
    return dealt


def remove_leftovers(folders: Folders, last: Entry | None) -> None:
    """Remove what attempts have written that were never committed. Only for a job that does not run."""
    done = last.batch if last is not None else -1
    for bucket in os.listdir(folders.state):
        for file in os.listdir(folders.state / bucket):
            if int(file.partition("-")[0]) > done:
                (folders.state / bucket / file).unlink()
    for file in os.listdir(folders.feedback):
        if last is None or file not in last.feedback:
            (folders.feedback / file).unlink()


def _remove_others(folders: Folders, entry: Entry) -> None:
    """Remove all state but the heads, where each of them is a base."""
    kept = {str(Path(f"{bucket:05d}") / head.file) for bucket, head in entry.state.items()}
    for bucket in os.listdir(folders.state):
        for file in os.listdir(folders.state / bucket):
            if str(Path(bucket) / file) not in kept:
                (folders.state / bucket / file).unlink()
    remove_leftovers(folders, entry)
