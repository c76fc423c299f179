"""Records that cannot be sent through the shuffle, which is only noticed when they are packed.

They leave from the side port of their target and go on from there: into a sink, through the shuffle once
more, or into a vertex in Spark. None may be lost because its task has packed everything else already.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from engine_support import LocalRun

import penstock as ps
from penstock.engine.execution.parcels import Inbox, Outbox
from penstock.engine.storage.serialization import pack, unpack


def _nan() -> float:
    """Return a key that has no stable hash, and that equals no other."""
    return float("nan")


class Plain(ps.StatefulTask):
    """Counts, and is no combining task: its records are sent as they are."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        return (state or 0) + len(values), [(key, len(values))]


class Rekeyed(ps.StatefulTask):
    """Emits, after the shuffle, every third value with a key that has no stable hash."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        return True, [(_nan() if value % 3 == 0 else value, value) for value in values]


def _job(target: Any, *, behind: bool, **settings: Any) -> ps.Job:
    job = ps.Job("unpackable", on_error="discard")
    source = job.source("in", ps.MemorySource())
    rekeyed: Any = Rekeyed() if behind else lambda r: (_nan() if r.value % 3 == 0 else r.value, r.value)
    keyed = job.task("keyed", target, **settings)
    source >> job.task("rekeyed", rekeyed) >> keyed >> job.sink("out", ps.MemorySink())
    again = job.task("again", lambda r: (r.value["vertex"], r.value["value"]))
    keyed["errors"] >> again >> job.task("found", ps.Count()) >> job.sink("counted", ps.MemorySink())
    # A second time: an invalid record becomes a record that is invalid as well.
    twice = job.task("twice", Plain())
    keyed["errors"] >> job.task("worse", lambda r: (_nan(), r.value["value"])) >> twice
    twice >> job.sink("nothing", ps.MemorySink())
    twice["errors"] >> job.sink("failed", ps.MemorySink())
    return job


@pytest.mark.parametrize("behind", [False, True], ids=["before the shuffle", "behind it"])
@pytest.mark.parametrize(
    ("target", "settings"),
    [
        (ps.Count(), {}),
        (Plain(), {}),
        (ps.Count(), {"window": ps.CountWindow(1)}),
    ],
    ids=["partials", "groups", "records"],
)
def test_what_cannot_be_packed_goes_on_from_the_side_port(
    tmp_path: Path, target: Any, settings: dict[str, Any], behind: bool
) -> None:
    run = LocalRun(_job(target, behind=behind, **settings), tmp_path, buckets=5, slots=2)
    run.drain([(n % 4, n) for n in range(30)])
    good = {n for n in range(30) if n % 3}
    bad = len([n for n in range(30) if n % 3 == 0])
    assert Counter(record.key for record in run.sinks["out"].records) == Counter(good)
    assert max(record.value for record in run.sinks["counted"].records) == bad
    assert len(run.sinks["failed"].records) == bad
    errors = Counter(ps.Failed.from_record(record).vertex for record in run.sides["errors"].records)
    assert errors == {"keyed": bad, "twice": bad}
    assert run.sinks["nothing"].records == []


def test_partial_results_of_one_key_are_merged_wherever_they_meet(tmp_path: Path) -> None:
    """A parcel has a key of one origin once, and a bucket merges keys that it has more than once."""
    job = ps.Job("merged")
    source = job.source("in", ps.MemorySource())
    source >> job.task("count", ps.Count()) >> job.sink("out", ps.MemorySink())
    blueprint = LocalRun(job, tmp_path, buckets=1).blueprint
    outbox = Outbox(blueprint, _raising, by_origin=True)
    count = blueprint.index_of("count")
    for bucket in (4, 7, 4):
        outbox.begin(bucket)
        outbox.add((count, "in", ()), [ps.Record("a", 0)])
    ((_, parcel),) = outbox.drain(lambda _: None)
    assert unpack(parcel)[-2:] == (["a", "a"], [2, 1])
    assert outbox.empty
    assert list(outbox.drain(lambda _: None)) == []
    twice = pack(("partials", "count", "in", (), None, "", ["a", "b", "a"], [1, 5, 2]))
    for parcels in ([twice], [twice, parcel], [parcel, twice]):
        inbox = Inbox(blueprint, _raising)
        inbox.take(parcels)
        (partials,) = inbox.partials.values()
        assert partials == {"a": 3 * parcels.count(twice) + 3 * parcels.count(parcel), "b": 5}


def _raising(vertex: int, counters: tuple[int, ...]) -> Any:
    def fail(record: ps.Record, error: BaseException, again: Any) -> None:
        raise AssertionError(f"vertex {vertex} has failed for {record}") from error

    return fail
