"""Where the time of a keyed count goes: the same halves that Spark runs, one after the other, timed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import penstock as ps
from benchmarks.events import keyed_batches
from penstock.engine.blueprint import make_blueprint
from penstock.engine.execution.batch_stages import BatchPart, run_keyed_stage, run_source_stage
from penstock.engine.execution.blueprint_transfer import load_program, pack_blueprint
from penstock.engine.storage.serialization import unpack
from penstock.engine.storage.state_chain import StateHead
from penstock.graph.vertex import SIDE_STREAMS
from penstock.log import Log, log_folder

T = TypeVar("T")
ROUNDS = 3


def profile(records: int, keys: int) -> str:
    """Return, in a sentence, what a record costs in each part of the work, and what a batch is made of."""
    with tempfile.TemporaryDirectory(prefix="benchmark-profile-") as place:
        log = Log.create(log_folder("input", place))
        for pairs in keyed_batches(1, records, keys):
            log.append([ps.Record(key, value) for key, value in pairs])
        job = ps.Job("profile")
        source = ps.LogSource("input", root=place)
        sink = ps.LogSink("output", root=place)
        job.source("input", source) >> job.task("count", ps.Count()) >> job.sink("output", sink)
        blueprint = make_blueprint(
            job, folder=Path(place) / "job", buckets=1, sides={s: ps.MemorySink() for s in SIDE_STREAMS}
        )
        blueprint.folders.create()
        sink.prepare()
        program = load_program(pack_blueprint(blueprint))
        heads: dict[int, StateHead] = {}
        reading = direct = keyed = float("inf")
        for batch in range(ROUNDS):
            part = BatchPart(batch, 0, {}, source="input", split=(0, 0, records), heads=heads)
            taken, _ = _timed(lambda: [len(chunk) for chunk in source.read((0, 0, records))])
            reading = min(reading, taken)
            taken, rows = _timed(lambda part=part: list(run_source_stage(program, part)))  # type: ignore[misc]
            direct = min(direct, taken)
            taken, out = _timed(lambda rows=rows: list(run_keyed_stage(program, rows)))  # type: ignore[misc]
            keyed = min(keyed, taken)
            for row in out:
                heads.update(unpack(row[2])[0].state)
        parcels = sum(len(row[2]) for row in rows)
    each = [1e9 * seconds / records for seconds in (reading, direct - reading, keyed)]
    return (
        f"Profile, a record on one core: {each[0]:.0f} ns reading and decoding, {each[1]:.0f} ns counting "
        f"and packing, {each[2]:.0f} ns merging into the state, storing it and the results. A batch of "
        f"{records:,} records sends {parcels / 1e6:.2f} MB through the shuffle. The rest of the time is "
        "a batch's fixed cost (see small batch), which Bytewax, not being fault-tolerant here, does not have."
    )


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    started = time.process_time()
    result = work()
    return time.process_time() - started, result
