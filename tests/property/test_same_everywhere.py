"""Two replicas run the same batches: whatever Spark's order, and wherever the state is from, they agree."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from engine_support import LocalRun, Record
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engine import job_sources
from penstock.engine.storage import state_chain
from penstock.engine.storage.keyed_state import drop_cached_state, read_bucket
from penstock.replicas.agreement.agreement_protocol import ReplicaSpec

CASES = settings().max_examples // 2
_MEMBER = ReplicaSpec("order", 0, "agreement")


class Story(ps.StatefulTask):
    """Remembers the order in which values have come, and tells it."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        told = [*(state or []), *values][-12:]
        return told, [(key, list(told))]


class Pair(ps.Task):
    """Puts together what comes in at both of its ports."""

    inputs = ("left", "right")
    sync = True

    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        [left], [right] = inputs["left"], inputs["right"]
        outputs.emit(left.key, (left.value, right.value))


def _job() -> ps.Job:
    job = ps.Job("order")
    source = job.source("source", ps.MemorySource())
    double = job.task("double", lambda r: [(r.key, r.value * 2)])
    source >> double
    story = job.task("story", Story())
    source >> story
    double >> story
    story >> job.sink("stories", ps.MemorySink())
    again = job.task("again", Story())
    story >> job.task("swap", lambda r: (len(r.value) % 3, (r.key, tuple(r.value)))) >> again
    again >> job.sink("later", ps.MemorySink())
    total = job.task("total", ps.Sum())
    source >> total >> job.sink("totals", ps.MemorySink())
    minutes = job.task("minutes", Story(), window=ps.TimeWindow(6, slide=2, watermark=4))
    source >> minutes >> job.sink("windows", ps.MemorySink())
    sums = job.task("sums", ps.Sum(), window=ps.TimeWindow(5, slide=2, watermark=3))
    source >> sums >> job.sink("window-sums", ps.MemorySink())
    threes = job.task("threes", Story(), window=ps.CountWindow(3, slide=2))
    source >> threes >> job.sink("counted", ps.MemorySink())
    pair = job.task("pair", Pair())
    source >> pair["left"]
    double >> pair["right"]
    pair >> job.sink("pairs", ps.MemorySink())
    # Dealt out before the shuffle and from behind it, in turn and to all.
    dealt = job.task("dealt", lambda r: (r.key, (ps.ctx.instance, r.value)), parallelism=4)
    source >> dealt >> job.sink("dealt-out", ps.MemorySink())
    # Behind what is dealt out, windows that wait for a silent lane for different times.
    for idle in (1, 4):
        late = job.task(f"wait-{idle}", Story(), window=ps.TimeWindow(4, watermark=3, idle=idle))
        dealt >> late >> job.sink(f"waited-{idle}", ps.MemorySink())
    told = job.task("told", lambda r: (r.key, (ps.ctx.instance, r.value)), parallelism=2)
    job.connect(total, told, by=ps.BROADCAST)
    told >> job.sink("told-all", ps.MemorySink())
    return job


def _batches(seed: int) -> list[dict[tuple[str, str], list[Record]]]:
    dice = random.Random(seed)
    clock = 0.0
    batches = []
    for _ in range(dice.randint(2, 5)):
        lanes: dict[tuple[str, str], list[Record]] = {}
        for lane in range(3):
            number = dice.randint(0, 12) * dice.choice([0, 1, 1])
            times = [clock + dice.uniform(-3, 3) for _ in range(number)]
            lanes["source", str(lane)] = [
                Record(dice.choice("abcd"), dice.choice([0.1, 0.7, 1e9, 1e-9, 3.3]), ts) for ts in times
            ]
        clock += dice.uniform(0, 6)
        batches.append(lanes)
    return batches


def _states(run: LocalRun) -> dict[int, Any]:
    """Return what the disk has, in its order."""
    return {
        bucket: [
            (section, [*held.items()] if "@" in section else sorted(held.items(), key=repr))
            for section, held in sorted(read_bucket(run.blueprint.folders.state, bucket, head).items())
            if held
        ]
        for bucket, head in sorted(run.heads.items())
    }


@settings(max_examples=CASES)
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_a_batch_gives_the_same_in_every_replica(seed: int, buckets: int) -> None:
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        one, other = (
            LocalRun(_job(), Path(folder) / name, buckets=buckets, replica_spec=_MEMBER)
            for name in ("one", "other")
        )
        other.shuffler = dice
        for now, lanes in enumerate(_batches(seed)):
            one.run(lanes, now=float(now))
            if dice.random() < 0.5:
                drop_cached_state(other.blueprint.folders.state)
            with pytest.MonkeyPatch.context() as within:
                within.setattr(state_chain, "_MAX_DELTAS", dice.choice([0, 1, 500]))
                within.setattr(state_chain, "_MAX_REACH", dice.choice([0, 1, 500]))
                other.run(lanes, now=float(now))
        one.end()
        drop_cached_state(other.blueprint.folders.state)
        other.end()
        assert {name: sink.records for name, sink in other.sinks.items()} == {
            name: sink.records for name, sink in one.sinks.items()
        }
        assert [s.digests for s in other.summaries] == [s.digests for s in one.summaries]
        assert [s.state_digests for s in other.summaries] == [s.state_digests for s in one.summaries]
        assert _states(other) == _states(one)
        assert other.times_entry == one.times_entry


@settings(max_examples=CASES)
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4))
def test_results_do_not_depend_on_the_slot_table(seed: int, buckets: int, one: int, other: int) -> None:
    """Another number of tasks, and another division of the buckets among them in each batch."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        fixed, moved = (
            LocalRun(_job(), Path(folder) / name, buckets, replica_spec=_MEMBER, slots=min(slots, buckets))
            for name, slots in (("fixed", one), ("moved", other))
        )
        moved.shuffler = dice
        for now, lanes in enumerate(_batches(seed)):
            fixed.run(lanes, now=float(now))
            moved.assign([dice.randrange(moved.blueprint.slots) for _ in range(buckets)])
            moved.run(lanes, now=float(now))
        fixed.end()
        moved.end()
        assert _by_key(moved) == _by_key(fixed)
        assert [s.digests for s in moved.summaries] == [s.digests for s in fixed.summaries]
        assert [s.state_digests for s in moved.summaries] == [s.state_digests for s in fixed.summaries]
        assert _states(moved) == _states(fixed)
        assert moved.times_entry == fixed.times_entry


def _by_key(run: LocalRun) -> dict[str, dict[Any, list[Any]]]:
    """Return the results of each key in their order; it is kept where all of them come from one bucket."""
    found: dict[str, dict[Any, list[Any]]] = {}
    for name, sink in run.sinks.items():
        for record in sink.records:
            found.setdefault(name, {}).setdefault(record.key, []).append((record.value, record.ts))
    for name in ("dealt-out", "told-all"):  # Instances of several buckets emit these.
        for results in found.get(name, {}).values():
            results.sort(key=repr)
    return found


@given(st.lists(st.integers(0, 7), max_size=6), st.lists(st.integers(0, 7), max_size=6))
def test_a_source_is_cut_in_the_same_places(one: list[int], other: list[int]) -> None:
    def cut(sizes: list[int], total: int) -> list[list[int]]:
        flat = [Record(None, n) for n in range(total)]
        chunks: list[Any] = []
        for size in [*sizes, total]:
            chunks.append(flat[:size])
            del flat[:size]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job_sources, "_CHUNK", 5)
            return [[record.value for record in chunk] for chunk in job_sources.rechunk(chunks)]  # type: ignore[union-attr]

    total = sum(one) + sum(other)
    found = cut(one, total)
    assert found == cut(other, total)
    assert [number for chunk in found for number in chunk] == list(range(total))
