"""Ids of records are the same in all replicas, whatever task runs which bucket, and never given twice."""

from __future__ import annotations

from pathlib import Path

from engine_support import LocalRun

import penstock as ps
from penstock.engine.execution.batch_stages import SUMMARY, BatchPart, run_keyed_stage, run_source_stage
from penstock.engine.storage.serialization import unpack
from penstock.replicas.agreement.agreement_protocol import ReplicaSpec

WORDS = ["a b c d e f g", "a b", "c c c"]


def job() -> ps.Job:
    job = ps.Job("count")
    lines = job.source("lines", ps.MemorySource())
    split = job.task("split", lambda r: [(word, 1) for word in r.value.split()])
    count = job.task("count", ps.Count())
    lines >> split >> count >> job.sink("out", ps.MemorySink())
    split >> job.sink("words", ps.MemorySink())
    return job


def by_id(sink: ps.MemorySink) -> dict[str, ps.Record]:
    return dict(zip(sink.ids, sink.records, strict=True))


def run(folder: Path, replica_spec: ReplicaSpec | None) -> LocalRun:
    run = LocalRun(job(), folder, buckets=3, replica_spec=replica_spec)
    for _ in range(2):
        run.run({("lines", "0"): WORDS[:2], ("lines", "1"): WORDS[2:]})
    return run


def test_replicas_give_the_same_ids_and_others_none(tmp_path: Path) -> None:
    first = run(tmp_path / "0", ReplicaSpec("count", 0, "agreement"))
    second = run(tmp_path / "1", ReplicaSpec("count~1", 1, "agreement"))
    alone = run(tmp_path / "2", None)
    for name in ("out", "words"):
        mine, other = first.sinks[name], second.sinks[name]
        assert by_id(mine) == by_id(other)
        assert len(set(mine.ids)) == len(mine.ids) == len(mine.records)
        assert alone.sinks[name].ids == []
    assert first.sinks["words"].ids[:10] == [
        *(f"000000000000-p0-{number:08d}" for number in range(9)),
        "000000000000-p1-00000000",
    ]


def test_it_does_not_matter_which_task_a_bucket_is_run_by(tmp_path: Path) -> None:
    found = []
    for slots in (1, 2, 3):
        spec = ReplicaSpec("count", 0, "agreement")
        local = LocalRun(job(), tmp_path / str(slots), buckets=3, replica_spec=spec, slots=slots)
        split = (0, [ps.Record(None, line) for line in WORDS])
        part = BatchPart(0, 0, {}, source="lines", split=split, lane="lines:0", heads={})
        rows = [row for row in run_source_stage(local.program, part) if row[1] != SUMMARY]
        tasks = [[row for row in rows if row[0] == slot] for slot in range(slots)]
        sink = local.sinks["out"]
        for its_rows in tasks:
            for _, _, data in run_keyed_stage(local.program, its_rows):
                receipts = unpack(data)[0].receipts.get("out", [])
                sink.commit(0, receipts)
        found.append(by_id(sink))
    assert len(found[0]) == 7
    assert found[0] == found[1] == found[2]
