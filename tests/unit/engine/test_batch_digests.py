"""Digests of whole batches: what a replica_spec tells of its output and of its state."""

from __future__ import annotations

import json
import zlib
from itertools import count
from pathlib import Path

from engine_support import LocalRun, Record

import penstock as ps
from penstock.engine.record_digest import digest
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.replicas.agreement.agreement_protocol import ReplicaSpec

_MEMBER = ReplicaSpec("count~1", 1, "agreement")


def _job() -> ps.Job:
    job = ps.Job("count")
    lines = job.source("lines", ps.MemorySource())
    split = job.task("split", lambda r: [(word, 1) for word in r.value.split()])
    count = job.task("count", ps.Count())
    out = job.sink("out", ps.MemorySink())
    words = job.sink("words", ps.MemorySink())
    lines >> split >> count >> out
    split >> words
    return job


def test_a_job_without_replicas_has_no_digests(tmp_path: Path) -> None:
    summary = LocalRun(_job(), tmp_path).step(["a b", "a"])

    assert summary.digests == {}
    assert summary.state_digests == {}


def test_digests_are_of_what_the_sinks_and_the_state_have_got(tmp_path: Path) -> None:
    run = LocalRun(_job(), tmp_path, buckets=3, replica_spec=_MEMBER)
    first, second = run.step(["a b c", "a"]), run.step(["b"])

    assert first.digests == {
        "out": digest([Record("a", 2), Record("b", 1), Record("c", 1)]),
        "words": digest([Record(word, 1) for word in "abca"]),
    }
    assert first.state_digests == {"count": digest([("count", "a", 2), ("count", "b", 1), ("count", "c", 1)])}
    assert second.state_digests == {"count": digest([("count", "b", 2)])}


def test_what_an_error_says_is_not_compared_but_whose_it_is(tmp_path: Path) -> None:
    addresses = count()

    def fail(r: Record) -> str:
        raise ValueError(f"nobody knows <object at {next(addresses)}>")

    job = ps.Job("failing")
    source = job.source("in", ps.MemorySource())
    source >> job.task("fail", fail, on_error="discard") >> job.sink("out", ps.MemorySink())
    runs = [LocalRun(job, tmp_path / name, replica_spec=_MEMBER) for name in ("one", "two", "three")]
    one, two, other = (run.step([item]) for run, item in zip(runs, ("x", "x", "z"), strict=True))

    assert runs[0].sides["errors"].records != runs[1].sides["errors"].records
    assert one.digests == two.digests
    assert one.digests.keys() == {"@errors"}
    assert one.digests != other.digests


def test_an_entry_without_digests_is_still_read(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.commit(LedgerEntry(0, {"batch": 1}, digests={"count": 2**64 - 1}))
    found = ledger.read(0)
    assert found is not None
    assert found.digests == {"count": 2**64 - 1}

    [path] = tmp_path.glob("*.json")
    frame = json.loads(path.read_text())
    fields = json.loads(frame["entry"])
    del fields["digests"]
    body = json.dumps(fields)
    path.write_text(json.dumps({**frame, "entry": body, "crc": zlib.crc32(body.encode())}))

    assert ledger.read(0) == LedgerEntry(0, {"batch": 1})
