"""A replica that begins without state gives what the others give, as soon as it says that it is whole."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path

from engine_support import LocalRun, Record
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.replicas.agreement.agreement_protocol import ReplicaSpec
from penstock.replicas.agreement.replica_catch_up import is_complete

CASES = settings().max_examples // 4
_MEMBER = ReplicaSpec("windows", 0, "agreement")


def _job(dice: random.Random) -> ps.Job:
    def window() -> ps.TimeWindow:
        size = dice.choice([2, 3, 5])
        return ps.TimeWindow(size, slide=dice.choice([1, 2, size]), watermark=dice.choice([0, 2]))

    job = ps.Job("windows", replicas=ps.Replicas(recovery="next-window"))
    source = job.source("source", ps.MemorySource())
    count = job.task("count", ps.Count(), window=window())
    source >> count >> job.sink("counts", ps.MemorySink())
    total = job.task("sum", ps.Sum(), window=window())
    count >> job.task("all", lambda r: ("all", r.value)) >> total >> job.sink("sums", ps.MemorySink())
    source >> job.task("top", ps.TopN(2), window=window()) >> job.sink("best", ps.MemorySink())
    source >> job.sink("all-of-them", ps.MemorySink())
    return job


@settings(max_examples=CASES)
@given(st.integers(0, 2**32))
def test_a_replica_that_is_whole_gives_what_the_others_give(seed: int) -> None:
    dice = random.Random(seed)
    job = _job(dice)
    with tempfile.TemporaryDirectory() as folder:
        old = LocalRun(job, Path(folder) / "old", replica_spec=_MEMBER)
        new = LocalRun(job, Path(folder) / "new", replica_spec=_MEMBER)
        clock, joins, joined, whole_at = 0.0, dice.randint(1, 4), None, None
        for batch in range(24):
            # Each has its own agreement, and plans a batch if it has work: so there is some for both.
            counts = dice.choice([n for n in product(range(6), repeat=2) if any(n)])
            lanes = {
                ("source", str(lane)): [
                    Record(dice.choice("ab"), dice.randint(0, 9), clock + dice.uniform(-2, 2))
                    for _ in range(count)
                ]
                for lane, count in enumerate(counts)
            }
            clock += dice.uniform(0, 2)
            if joined is None and batch >= joins and old.last is not None:
                joined = old.times
                without_state = replace(old.last, receipts={}, feedback=[], state={}, digests={})
                new.go_on(replace(without_state, times={**old.times_entry, "pending": {}}))
            whole = joined is not None and is_complete(new.blueprint, joined, new.times)
            expected = old.run(lanes, now=float(batch))
            if joined is None:
                continue
            found = new.run(lanes, now=float(batch))
            assert found.marks == expected.marks
            if whole:
                whole_at = batch if whole_at is None else whole_at
                assert found.digests == expected.digests
                assert found.state_digests == expected.state_digests
        assert whole_at is not None
