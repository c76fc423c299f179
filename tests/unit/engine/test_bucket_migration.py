"""Going on with another number of buckets or another graph."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path, PosixPath, PurePosixPath
from typing import Any
from unittest import mock
from zlib import crc32

import pytest
from engine_support import LocalRun

import penstock as ps
from penstock.engine.driver.bucket_migration import change_buckets
from penstock.engine.execution import parcels
from penstock.engine.storage.keyed_state import read_bucket
from penstock.engine.storage.ledger import Intent, Ledger, LedgerEntry, repaired_entry, skipped_entry
from penstock.errors import IncompatibleJobError, JobFailedError
from penstock.graph.job_compatibility import incompatibilities
from penstock.key_hash import key_hash
from penstock.log import Log
from support.engines import LOCAL
from support.running import Engine


class Visits(ps.StatefulTask):
    """Counts, and sends each value round once more."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        return (state or 0) + len(values), [(key, value) for value in values]


def _job(task: Any = None) -> ps.Job:
    job = ps.Job("job", max_iterations=1)
    source = job.source("in", ps.MemorySource())
    keyed = job.task("keyed", task or Visits())
    source >> keyed >> keyed
    keyed >> job.sink("out", ps.MemorySink())
    return job


@pytest.mark.parametrize(("before", "after"), [(2, 5), (5, 2), (3, 1), (1, 4)])
def test_state_and_records_under_way_move_to_other_buckets(tmp_path: Path, before: int, after: int) -> None:
    run = LocalRun(_job(), tmp_path, buckets=before)
    run.step([(f"key{n}", n) for n in range(100)])
    folders = run.blueprint.folders
    assert run.last is not None

    entry = change_buckets(folders, run.last, after)

    assert Ledger(folders.ledger).latest() == entry
    assert entry.buckets == after
    held = {}
    for bucket, head in entry.state.items():
        for key, state in read_bucket(folders.state, bucket, head)["keyed"].items():
            assert key_hash(key) % after == bucket
            held[key] = state
    assert held == {f"key{n}": 1 for n in range(100)}

    going_on = LocalRun(_job(), tmp_path, buckets=after)
    going_on.step()
    assert going_on.out("out") == {(f"key{n}", n): 1 for n in range(100)}
    assert len(going_on.discarded.records) == 100


def _obstacles(old: dict[str, Any], new: dict[str, Any], last: LedgerEntry) -> list[str]:
    return incompatibilities(old, new, has_state=bool(last.state), in_flight=bool(last.feedback))


def _last(**changes: Any) -> LedgerEntry:
    fields: dict[str, Any] = {"batch": 3, "end": {}, "state": {0: object()}, **changes}
    return LedgerEntry(**fields)


def test_the_same_job_goes_on() -> None:
    assert _obstacles(_job().to_dict(), _job().to_dict(), _last(feedback=["f"])) == []


def test_other_code_of_stateless_tasks_is_no_obstacle() -> None:
    def job(function: Any) -> ps.Job:
        job = ps.Job("job")
        job.source("in", ps.MemorySource()) >> job.task("map", function) >> job.sink("out", ps.MemorySink())
        return job

    assert _obstacles(job(lambda r: r).to_dict(), job(str).to_dict(), _last()) == []


def test_lost_sources_and_states_are__obstacles() -> None:
    other = ps.Job("job")
    other.source("other", ps.MemorySource()) >> other.sink("out", ps.MemorySink())
    found = _obstacles(_job().to_dict(), other.to_dict(), _last())
    assert [reason.split()[0] for reason in found] == ["source", "the"]
    assert "'in'" in found[0]
    assert "'keyed'" in found[1]


def test_a_state_that_another_class_would_read_is_an_obstacle() -> None:
    [reason] = _obstacles(_job().to_dict(), _job(ps.Count()).to_dict(), _last())
    assert "Count" in reason


def test_records_under_way_need_the_graph_they_are_in() -> None:
    changed = _job()
    changed.vertex("in") >> changed.task("more", lambda r: r) >> changed.vertex("out")
    assert _obstacles(_job().to_dict(), changed.to_dict(), _last()) == []
    [reason] = _obstacles(_job().to_dict(), changed.to_dict(), _last(feedback=["f"]))
    assert "drain the job" in reason


@pytest.mark.parametrize(
    ("field", "before", "after", "words"),
    [
        ("window", {"size": 60}, {"size": 30}, "windows of {'size': 60} and has windows of {'size': 30}"),
        ("window", {"size": 60}, None, "windows of None now"),
        ("window", None, {"size": 60}, "one state for each key and has windows"),
        ("sync", True, False, "aligned its ports and does not align"),
    ],
)
def test_other_windows_and_other_waiting_are_obstacles_to_state(
    field: str, before: Any, after: Any, words: str
) -> None:
    old, new = _job().to_dict(), _job().to_dict()
    old["vertices"][1][field], new["vertices"][1][field] = before, after
    [reason] = _obstacles(old, new, _last())
    assert words in reason
    assert _obstacles(old, new, _last(state={})) == [], "nothing is held"


@pytest.mark.parametrize(
    ("by", "sync", "words"),
    [
        (ps.ROUND_ROBIN, True, "'pair' aligned its ports by same-key and aligns them by round-robin now"),
        (None, False, "'pair' aligned its ports and does not align them now"),
    ],
)
def test_records_that_wait_for_others_need_ports_that_wait_alike(by: Any, sync: bool, words: str) -> None:
    def job(by: Any, sync: bool) -> ps.Job:
        task = _Pair()
        task.sync = sync
        made = ps.Job("job")
        source, pair = made.source("in", ps.MemorySource()), made.task("pair", task)
        made.connect(source, pair["left"], by=by)
        made.connect(source, pair["right"], by=by)
        pair >> made.sink("out", ps.MemorySink())
        return made

    [reason] = _obstacles(job(None, True).to_dict(), job(by, sync).to_dict(), _last())
    assert words in reason
    assert _obstacles(job(None, True).to_dict(), job(None, True).to_dict(), _last()) == []


def test_other_guarantees_and_schemas_are_no__obstacles() -> None:
    old, new = _job().to_dict(), _job().to_dict()
    new["guarantee"] = "at-most-once"
    new["vertices"][1]["schema"] = {"n": "int"}
    assert _obstacles(old, new, _last()) == []


def test_a_batch_that_was_begun_and_not_ended_is_given_up() -> None:
    last = _last(end={"batch": 4}, receipts={"out": [1]}, feedback=["f"], buckets=2)
    intent = Intent(4, {"batch": 5}, 2)
    assert skipped_entry(last, intent) == LedgerEntry(4, {"batch": 5}, {}, [], last.state, 2)
    assert skipped_entry(None, Intent(0, {"batch": 1}, 3)) == LedgerEntry(0, {"batch": 1}, buckets=3)
    assert skipped_entry(last, None) is None
    assert skipped_entry(last, Intent(3, {"batch": 4}, 2)) is None, "the batch has ended"
    assert skipped_entry(last, Intent(4, {"batch": 4}, 2)) is None, (
        "a batch that reads nothing was never begun"
    )


def test_an_entry_that_no_batch_could_follow_is_mended() -> None:
    stuck = LedgerEntry(0, {"batch": 0, "sources": {"in": {"0": 0}}}, buckets=2)
    assert repaired_entry(stuck) == LedgerEntry(0, {"batch": 1, "sources": {"in": {"0": 0}}}, buckets=2)
    assert repaired_entry(repaired_entry(stuck)) == repaired_entry(stuck)


class _Pair(ps.Task):
    inputs, sync = ("left", "right"), True

    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        outputs.emit(inputs["left"][0].key, "pair")


def _waiting_job() -> ps.Job:
    """A job in which records wait: in windows of time and of count, and for a counterpart."""
    job = ps.Job("job")
    source, out = job.source("in", ps.MemorySource()), job.sink("out", ps.MemorySink())
    pair = job.task("pair", _Pair())
    source >> [
        job.task("time", ps.Count(), window=ps.TimeWindow(10)),
        job.task("count", ps.Sum(), window=ps.CountWindow(2)),
        pair["left"],
    ]
    [job.vertex("time"), job.vertex("count"), pair] >> out
    job.source("other", ps.MemorySource()) >> pair["right"]
    return job


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 2)])
def test_what_waits_moves_to_other_buckets(tmp_path: Path, before: int, after: int) -> None:
    run = LocalRun(_waiting_job(), tmp_path, buckets=before)
    run.step([ps.Record(f"key{n}", 1, 5.0) for n in range(20)])
    assert run.out("out") == {}
    assert run.last is not None
    if before != after:
        change_buckets(run.blueprint.folders, run.last, after)

    going_on = LocalRun(_waiting_job(), tmp_path, buckets=after)
    keys = [f"key{n}" for n in range(20)]
    going_on.run(
        {
            ("in", "0"): [ps.Record(key, 1, 5.0) for key in keys],
            ("other", "0"): [ps.Record(key, 1, 5.0) for key in keys],
        }
    )
    going_on.end()
    # A count of two and a sum of two look alike; and one pair of each key has found its counterpart.
    assert going_on.out("out") == {(key, what): n for key in keys for what, n in ((2, 2), ("pair", 1))}


def _counted(folder: Path, paths: list[Any], **patched: Any) -> list[tuple[Any, int]]:
    """Count paths, after those that the same folder has seen before."""
    log = Log.create(folder / "logs" / "in", partitions=1, exist_ok=True)
    log.append([ps.Record(None, str(path)) for path in paths])
    out = ps.MemorySink()
    job = ps.Job("paths", buckets=7)
    source = job.source("in", ps.LogSource("in", root=folder))
    keyed = job.task("key", lambda record: (PurePosixPath(record.value), None))
    source >> keyed >> job.task("count", ps.Count()) >> job.sink("out", out)
    with mock.patch.multiple(parcels, **patched) if patched else nullcontext():
        Engine(LOCAL).run(job, folder=folder / "job")
    return sorted((str(record.key), record.value) for record in out.records)


def test_keys_whose_bucket_another_version_chose_are_moved(tmp_path: Path) -> None:
    paths = [PurePosixPath(f"file-{number}") for number in range(40)]
    _counted(tmp_path, paths, key_hash=lambda key: crc32(repr(key).encode()))
    ledger = Ledger(tmp_path / "job" / "ledger")
    last = ledger.latest()
    assert last is not None
    ledger.replace(replace(last, keys=1))
    assert _counted(tmp_path, paths) == sorted((str(path), 2) for path in paths)


def _by_text(key: Any) -> int:
    """Stand for the hash of version 1, which told paths of different classes apart."""
    return crc32(repr(key).encode())


def _both_kinds(folder: Path, task: Any, by_batch: list[list[ps.Record]], **options: Any) -> LocalRun:
    """Run a job that keeps what belongs to equal keys in different buckets."""
    job = ps.Job("paths")
    (
        job.source("in", ps.MemorySource())
        >> job.task("work", task, **options)
        >> job.sink("out", ps.MemorySink())
    )
    run = LocalRun(job, folder, buckets=7)
    with mock.patch.object(parcels, "key_hash", _by_text):
        for records in by_batch:
            run.step(records)
    assert len(run.heads) == 2, "the keys are in different buckets"
    return run


POSIX, PURE = PosixPath("a"), PurePosixPath("a")


def _moved(run: LocalRun) -> LocalRun:
    assert run.last is not None
    entry = change_buckets(run.blueprint.folders, run.last, 7, run.blueprint)
    run._committer.begin(entry)
    return run


def _at(key: Any, value: Any, ts: float | None = 5.0) -> ps.Record:
    return ps.Record(key, value, ts)


@pytest.mark.parametrize("task", [ps.Sum(), ps.Reduce(lambda left, right: left + right)])
def test_states_of_keys_that_have_become_equal_are_merged(tmp_path: Path, task: Any) -> None:
    run = _both_kinds(tmp_path, task, [[_at(POSIX, 5)], [_at(PURE, 3)]])
    _moved(run).step([_at(POSIX, 1)])
    assert run.sinks["out"].records[-1].value == 9


class Replaces(ps.CombiningTask):
    """Merges, but keeps something else than what it has merged."""

    def lift(self, value: Any) -> Any:
        return value

    def merge(self, left: Any, right: Any) -> Any:
        return left + right

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        return values[0], [(key, values[0])]


class Unmergeable(ps.Sum):
    """Has states that cannot be merged."""

    def lift(self, value: Any) -> Any:
        return {"sum": value}


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (Visits(), "this vertex cannot merge their states"),
        (Replaces(), "this vertex cannot merge their states"),
        (Unmergeable(), "merging their states failed: TypeError"),
    ],
)
def test_states_that_cannot_be_merged_are_refused_and_left_alone(
    tmp_path: Path, task: Any, reason: str
) -> None:
    run = _both_kinds(tmp_path, task, [[_at(POSIX, 5)], [_at(PURE, 3)]])
    folders = run.blueprint.folders
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(IncompatibleJobError) as refused:
        _moved(run)
    said = str(refused.value)
    assert all(word in said for word in ("job 'paths'", "'work'", "Path('a')", reason, "--fresh"))
    assert sorted(tmp_path.rglob("*")) == before
    assert Ledger(folders.ledger).latest() == run.last


@pytest.mark.parametrize("task", [ps.Sum(), ps.Reduce(lambda left, right: left + right)])
def test_windows_of_keys_that_have_become_equal_are_merged(tmp_path: Path, task: Any) -> None:
    run = _both_kinds(tmp_path, task, [[_at(POSIX, 5)], [_at(PURE, 3)]], window=ps.TimeWindow(10))
    _moved(run).step([_at(POSIX, 1)])
    assert [record.value for record in run.end().sinks["out"].records] == [9]


class Listed(ps.StatefulTask):
    """Emits what a window has."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        return None, [(key, tuple(sorted(values)))]


def test_values_that_wait_in_windows_of_keys_that_have_become_equal_are_put_together(tmp_path: Path) -> None:
    batches = [[_at(POSIX, 5), _at(PURE, 3)]]
    run = _both_kinds(tmp_path, Listed(), batches, window=ps.TimeWindow(10))
    _moved(run).step([_at(POSIX, 1)])
    assert [record.value for record in run.end().sinks["out"].records] == [(1, 3, 5)]


def test_windows_of_a_number_of_records_of_keys_that_have_become_equal_are_refused(tmp_path: Path) -> None:
    run = _both_kinds(tmp_path, ps.Sum(), [[_at(POSIX, 5)], [_at(PURE, 3)]], window=ps.CountWindow(3))
    with pytest.raises(IncompatibleJobError, match="cannot merge their states"):
        _moved(run)


def test_records_that_wait_for_others_under_keys_that_have_become_equal_are_put_together(
    tmp_path: Path,
) -> None:
    job = ps.Job("pairs")
    pair = job.task("pair", _Pair())
    job.source("in", ps.MemorySource()) >> pair["left"]
    job.source("other", ps.MemorySource()) >> pair["right"]
    pair >> job.sink("out", ps.MemorySink())
    run = LocalRun(job, tmp_path, buckets=7)
    with mock.patch.object(parcels, "key_hash", _by_text):
        run.run({("in", "0"): [_at(POSIX, 1), _at(PURE, 2)]})
    assert len(run.heads) == 2
    _moved(run).run({("other", "0"): [_at(PURE, 1), _at(PURE, 2)]})
    assert [record.value for record in run.sinks["out"].records] == ["pair", "pair"]


@pytest.mark.parametrize("in_flight", [False, True])
def test_keys_that_are_refused_now_are_told_in_a_sentence(tmp_path: Path, in_flight: bool) -> None:
    job = ps.Job("job")
    source, keyed = job.source("in", ps.MemorySource()), job.task("keyed", ps.Count())
    source >> job.task("first", Listed()) >> keyed if in_flight else source >> keyed
    keyed >> job.sink("out", ps.MemorySink())
    run = LocalRun(job, tmp_path, buckets=2)
    with mock.patch.object(parcels, "key_hash", return_value=0):
        run.step([(float("nan"), 1)])
    assert run.last is not None
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(IncompatibleJobError, match=r"job 'job'.*'keyed' under the invalid key nan.*--fresh"):
        change_buckets(run.blueprint.folders, run.last, 3, run.blueprint)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("content", ["", '{"name": "pa', "[]", "\x00"])
def test_a_damaged_note_of_the_job_that_ran_is_told_in_a_sentence(tmp_path: Path, content: str) -> None:
    _counted(tmp_path, ["a"])
    (tmp_path / "job" / "job.json").write_text(content)
    with pytest.raises(
        JobFailedError, match=r"job\.json is damaged: .* Restore the file, or start from scratch"
    ):
        _counted(tmp_path, ["a"])
