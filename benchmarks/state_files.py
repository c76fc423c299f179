"""What it costs to store the keyed state of a batch: one file for each task, against one for each bucket.

Both are the code of the engine: a task with a single bucket writes a file of its own.
"""

from __future__ import annotations

import gc
import random
import tempfile
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from statistics import median
from uuid import uuid4

from benchmarks.halves import Comparison
from benchmarks.sizes import Sizes
from benchmarks.table import Row, compare
from penstock.engine.storage.keyed_state import (
    StateReader,
    TaskState,
    drop_cached_state,
    remove_before,
    shared_folder,
)
from penstock.engine.storage.state_chain import StateHead, oldest_shared_batch

BUCKETS, TASKS = 128, 2
_KEYS_EACH, _KEY_SPACE = 8, 200
_REMOVE_EVERY = 20


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Measure batches that change every bucket, and reading all buckets after a restart."""
    batches, synced_batches = (40, 10) if sizes.quick else (500, 20)
    storing: list[tuple[float, float]] = []
    reading: list[tuple[float, float]] = []
    synced: list[tuple[float, float]] = []
    for _ in range(sizes.rounds):
        ours, other = (_storing(work, tasks, batches) for tasks in (TASKS, BUCKETS))
        storing.append((1000 * ours[0], 1000 * other[0]))
        reading.append((1000 * ours[1], 1000 * other[1]))
        ours, other = (_storing(work, tasks, synced_batches, synced=True) for tasks in (TASKS, BUCKETS))
        synced.append((1000 * ours[0], 1000 * other[0]))
    against = "a file for each bucket"
    return [
        compare("state files, a batch", against, "ms", _comparison(storing), at_most=0.5),
        compare("state files, a synced batch", against, "ms", _comparison(synced), at_most=0.5),
        compare(
            "state files, read after a restart",
            against,
            "ms",
            _comparison(reading),
            note=f"{BUCKETS} buckets that every batch changes, {_KEYS_EACH} keys each, in {TASKS} tasks;"
            f" read after {batches:,} batches",
        ),
    ]


def _comparison(pairs: list[tuple[float, float]]) -> Comparison:
    return Comparison(tuple(ours for ours, _ in pairs), tuple(other for _, other in pairs))


def _storing(work: Path, tasks: int, batches: int, *, synced: bool = False) -> tuple[float, float]:
    """Return the median seconds of storing a batch, and those of reading everything at the end."""
    dice = random.Random(7)
    with tempfile.TemporaryDirectory(dir=work) as place:
        folder = Path(place)
        heads: dict[int, StateHead] = {}
        taken = []
        for batch in range(batches):
            began = time.perf_counter()
            for task in range(tasks):
                own = {bucket: heads.get(bucket) for bucket in range(task, BUCKETS, tasks)}
                heads |= _store(folder, own, batch, dice, synced=synced)
            if batch % _REMOVE_EVERY == 0:
                remove_before(shared_folder(folder), oldest_shared_batch(heads.values(), batch))
            taken.append(time.perf_counter() - began)
        drop_cached_state(folder)
        gc.collect()
        began = time.perf_counter()
        for task in range(tasks):
            with StateReader(folder) as reader:
                for bucket in range(task, BUCKETS, tasks):
                    reader.read_bucket(bucket, heads[bucket])
        return median(taken), time.perf_counter() - began


def _store(
    folder: Path, heads: Mapping[int, StateHead | None], batch: int, dice: random.Random, *, synced: bool
) -> dict[int, StateHead]:
    with TaskState(folder, heads, batch, uuid4().hex, synced=synced) as states:
        for bucket in heads:
            state = states.bucket(bucket)
            keys = [f"key-{dice.randrange(_KEY_SPACE)}" for _ in range(_KEYS_EACH)]
            state.states.setdefault("count", {}).update(zip(keys, count(batch), strict=False))
            state.changed("count", keys)
            states.save(state)
        for bucket in states.overdue():
            states.rewrite(bucket)
        return states.finish()
