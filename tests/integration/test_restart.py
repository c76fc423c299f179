"""Jobs that stop and go on: state, positions and records under way survive; what cannot go on says so."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine.storage.ledger import Ledger
from penstock.log import Log, StagedSegment, log_folder
from support.running import Engine


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    return tmp_path


def _append(name: str, *items: Any) -> None:
    log = Log.create(log_folder(name), exist_ok=True)
    log.append([ps.Record(key, value) for key, value in items])


def _read(name: str) -> Counter[tuple[Any, Any]]:
    log = Log.open(log_folder(name))
    return Counter(
        (r.key, r.value) for p in range(log.partitions) for records in log.read(p, 0) for r in records
    )


def _counting(**options: Any) -> ps.Job:
    job = ps.Job("counting", **options)
    count = job.task("count", ps.Count())
    job.source("in", ps.LogSource("in")) >> count >> job.sink("out", ps.LogSink("out"))
    return job


def test_a_job_goes_on_where_it_ended(home: Path, spark: Engine) -> None:
    _append("in", ("a", 1), ("b", 1))
    assert spark.run(_counting()).records_in == 2
    assert spark.run(_counting()).batches == 0, "nothing new, nothing done"
    _append("in", ("a", 1))
    report = spark.run(_counting())
    assert (report.records_in, report.batches) == (1, 1)
    assert _read("out") == Counter([("a", 1), ("b", 1), ("a", 2)])


def test_a_query_that_was_stopped_while_it_noted_its_first_batch_begins_again(
    home: Path, spark: Engine
) -> None:
    _append("in", ("a", 1))
    offsets = home / "jobs" / "counting" / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.half-written.tmp").write_text("v1")
    assert spark.run(_counting()).records_in == 1
    assert _read("out") == Counter([("a", 1)])


def test_another_number_of_buckets_takes_the_state_along(home: Path, engine: Engine) -> None:
    _append("in", *((n, 1) for n in range(20)))
    engine.run(_counting(buckets=2))
    _append("in", *((n, 1) for n in range(20)))
    engine.run(_counting(buckets=5))
    _append("in", *((n, 1) for n in range(20)))
    engine.run(_counting(buckets=1))
    assert _read("out") == Counter((n, count) for n in range(20) for count in (1, 2, 3))


def test_a_fresh_run_starts_over(home: Path, engine: Engine) -> None:
    _append("in", ("a", 1))
    engine.run(_counting())
    engine.run(_counting(), fresh=True)
    assert _read("out") == Counter({("a", 1): 2})


def test_a_job_that_cannot_go_on_is_refused_and_harmed_in_nothing(home: Path, engine: Engine) -> None:
    _append("in", ("a", 1))
    engine.run(_counting())
    other = ps.Job("counting")
    other.source("in", ps.LogSource("in")) >> other.sink("out", ps.LogSink("out"))
    with pytest.raises(ps.IncompatibleJobError, match=r"'count'.*\n.*fresh"):
        engine.run(other)
    _append("in", ("a", 1))
    engine.run(_counting())
    assert _read("out") == Counter([("a", 1), ("a", 2)])


def test_a_job_whose_code_raises_goes_on_after_it_is_mended(home: Path, engine: Engine) -> None:
    def job(function: Any) -> ps.Job:
        job = ps.Job("mended")
        source = job.source("in", ps.LogSource("in", max_records_per_batch=2))
        source >> job.task("map", function) >> job.task("sum", ps.Sum()) >> job.sink("out", ps.LogSink("out"))
        return job

    _append("in", *(("k", n) for n in (1, 1, 1, 0, 1, 1)))
    with pytest.raises(ps.TaskError, match="'map'"):
        engine.run(job(lambda r: (r.key, 1 // r.value)))
    with pytest.raises(ps.TaskError, match="'map'"):
        engine.run(job(lambda r: (r.key, 1 // r.value)))
    engine.run(job(lambda r: (r.key, r.value)))
    assert _read("out") == Counter([("k", 2), ("k", 3), ("k", 5)])


def test_records_under_way_survive_a_stop(home: Path, engine: Engine) -> None:
    most = 12
    job = ps.Job("looping", max_iterations=most)
    source = job.source("in", ps.LogSource("in"))
    keyed = job.task("keyed", ps.Sum())
    source >> keyed >> keyed
    keyed >> job.sink("out", ps.LogSink("out"))
    _append("in", ("k", 1))
    stopping: list[bool] = []

    def after_one_batch(report: ps.Report) -> None:
        if report.batches:
            stopping.append(True)

    first = engine.run(job, None, on_progress=after_one_batch, stop=lambda: bool(stopping))
    assert first.batches <= most, "stopped with a record in the loop"
    engine.run(job)
    assert _read("out") == Counter(("k", 2**n) for n in range(most + 1))
    discarded = Log.open(log_folder("looping.discarded"))
    [entries] = list(discarded.read(0, 0))
    assert [(r.value["vertex"], r.value["count"], r.value["value"]) for r in entries] == [
        ("keyed", most + 1, 2**most)
    ]


def test_two_runs_of_one_job_exclude_each_other(home: Path, engine: Engine) -> None:
    _append("in", ("a", 1))
    tried: list[Exception] = []

    def try_again(report: ps.Report) -> None:
        if not tried:
            with pytest.raises(ps.JobFailedError, match="running already") as caught:
                engine.run(_counting())
            tried.append(caught.value)

    engine.run(_counting(), on_progress=try_again)
    assert tried


def test_wrong_settings_are_refused(home: Path, engine: Engine) -> None:
    with pytest.raises(ps.LogError, match="penstock log create in"):
        engine.run(_counting())
    for until in ("later", -1, True):
        with pytest.raises(ps.SettingError, match="until"):
            ps.run(_counting(), until=until)


def test_a_damaged_segment_ends_the_job_and_is_named(home: Path, spark: Engine) -> None:
    _append("in", ("a", 1))
    _append("in", ("b", 1))
    spark.run(_counting())
    _append("in", ("c", 1), ("d", 1))
    [*_, last] = sorted((log_folder("in") / "p00000").iterdir())
    content = bytearray(last.read_bytes())
    content[-9] ^= 1
    last.chmod(0o600)
    last.write_bytes(content)
    with pytest.raises(ps.LogCorruptionError, match=last.name):
        spark.run(_counting())
    assert _read("out") == Counter([("a", 1), ("b", 1)])


def test_a_value_that_no_log_can_hold_is_named(home: Path, engine: Engine) -> None:
    job = ps.Job("unstorable")
    source = job.source("in", ps.MemorySource([1]))
    source >> job.task("odd", lambda r: object()) >> job.sink("out", ps.LogSink("out"))
    with pytest.raises(ps.TaskError, match="object") as caught:
        engine.run(job)
    assert caught.value.vertex == "out"


def test_a_run_for_a_time_and_the_console(
    home: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ps.Job("console")
    job.source("in", ps.MemorySource([("k", 1), "bare"])) >> job.sink("out", ps.ConsoleSink())
    report = engine.run(job, until=2.0)
    assert report.seconds >= 2.0
    # That is time enough for a batch, but not on every machine.
    assert capsys.readouterr().out == ("k\t1\nbare\n" if report.batches else "")
    engine.run(job, until="drained")
    assert capsys.readouterr().out == "k\t1\nbare\n"


def _job_folder(home: Path) -> Path:
    return home / "jobs" / "counting"


def test_a_lost_checkpoint_heals_from_the_ledger(home: Path, spark: Engine) -> None:
    """The ledger alone says what has happened: Spark's own files may be gone, and batches be cut anew."""
    _append("in", *((n % 3, 1) for n in range(30)))

    def job(size: int) -> ps.Job:
        job = ps.Job("counting")
        source = job.source("in", ps.LogSource("in", max_records_per_batch=size))
        source >> job.task("count", ps.Count()) >> job.sink("out", ps.LogSink("out"))
        return job

    spark.run(job(10))
    checkpoint = _job_folder(home) / "checkpoint"
    (checkpoint / "commits" / "2").unlink()
    (checkpoint / "offsets" / "2").unlink()
    _append("in", *((n % 3, 1) for n in range(30)))
    spark.run(job(25))
    _append("in", *((n % 3, 1) for n in range(21)))
    spark.run(job(1))  # Enough batches that the ledger has forgotten the first ones.
    assert not Ledger(_job_folder(home) / "ledger").has(0)
    shutil.rmtree(checkpoint)
    _append("in", *((n % 3, 1) for n in range(30)))
    spark.run(job(7))
    offsets = checkpoint / "offsets"
    newest = max(offsets.iterdir(), key=lambda path: int(path.name) if path.name.isdigit() else -1)
    newest.unlink()  # Spark would see two jobs at work.
    _append("in", *((n % 3, 1) for n in range(30)))
    spark.run(job(7))
    shutil.rmtree(checkpoint)
    offsets.mkdir(parents=True)
    (offsets / ".0.1f0e.tmp").touch()  # Spark was killed while it wrote its first offset.
    _append("in", *((n % 3, 1) for n in range(30)))
    spark.run(job(7))
    counts: dict[Any, int] = {}
    for key, count in _read("out"):
        counts[key] = max(counts.get(key, 0), count)
    assert counts == {0: 57, 1: 57, 2: 57}
    assert max(_read("out").values()) == 1, "no count was written twice"
    max((_job_folder(home) / "ledger").glob("*.json")).unlink()
    with pytest.raises(ps.IncompatibleJobError, match="files were altered"):
        spark.run(job(7))


def test_a_ledger_that_is_behind_is_refused(home: Path, spark: Engine) -> None:
    _append("in", ("a", 1))
    spark.run(_counting())
    _append("in", ("a", 1))
    spark.run(_counting())
    newest = max((_job_folder(home) / "ledger").glob("*.json"))
    content = newest.read_bytes()
    newest.unlink()
    with pytest.raises(
        ps.IncompatibleJobError, match=r"Spark's checkpoint in .* has batch 1.*files were altered"
    ):
        spark.run(_counting())
    newest.write_bytes(content)
    _append("in", ("a", 1))
    spark.run(_counting())
    assert _read("out") == Counter([("a", 1), ("a", 2), ("a", 3)])


def test_a_batch_that_was_committed_and_not_published_is_published(home: Path, spark: Engine) -> None:
    """A crash between the ledger's entry and the sink: however long ago it was, nothing is lost."""
    _append("in", ("a", 1), ("b", 1))
    spark.run(_counting())
    out = log_folder("out")
    ledger = Ledger(_job_folder(home) / "ledger")
    last = ledger.latest()
    assert last is not None
    # As it was before the publishing: the segments are staged, and the log does not have them.
    for receipt in last.receipts["out"]:
        for text in receipt["segments"]:
            segment = StagedSegment.from_json(text)
            [published] = (
                path
                for path in (out / "p00000").glob("*.seg")
                if bytes.fromhex(segment.id) in path.read_bytes()[:64]
            )
            staged = out / "staging" / segment.file
            published.rename(staged)
            os.utime(staged, (0, time.time() - 2 * 24 * 3600))
    (_job_folder(home) / "checkpoint" / "commits" / "0").unlink()
    (_job_folder(home) / "ledger" / "published").unlink()
    assert not _read("out")
    spark.run(_counting())
    assert _read("out") == Counter([("a", 1), ("b", 1)])


def test_another_log_under_an_old_position_is_refused(home: Path, engine: Engine) -> None:
    _append("in", ("a", 1), ("b", 1))
    engine.run(_counting())
    shutil.rmtree(log_folder("in"))
    _append("in", ("a", 1))
    with pytest.raises(ps.LogError, match="not the log that the job has read"):
        engine.run(_counting())
    _append("elsewhere", ("a", 1))
    other = ps.Job("counting")
    source = other.source("in", ps.LogSource("elsewhere"))
    source >> other.task("count", ps.Count()) >> other.sink("out", ps.LogSink("out"))
    with pytest.raises(ps.IncompatibleJobError, match="'elsewhere'"):
        engine.run(other)


def test_a_source_that_joins_begins_at_its_beginning(home: Path, engine: Engine) -> None:
    _append("in", ("a", 1))
    engine.run(_counting())
    _append("more", ("a", 1), ("a", 1))
    job = _counting()
    job.source("more", ps.LogSource("more")) >> job.vertex("count")
    engine.run(job)
    assert _read("out") == Counter([("a", 1), ("a", 3)])


def test_records_of_unstorable_values_are_discarded_in_words(home: Path, engine: Engine) -> None:
    job = ps.Job("wordy", max_iterations=0)
    again = job.task("again", lambda r: (r.key, object() if r.value == "odd" else r.value))
    job.source("in", ps.MemorySource([("k", "plain"), ("k", "odd")])) >> again >> again
    again >> job.sink("out", ps.MemorySink())
    engine.run(job)
    [entries] = list(Log.open(log_folder("wordy.discarded")).read(0, 0))
    values = [entry.value["value"] for entry in entries]
    assert values[0] == "plain"
    assert values[1].startswith("<object object")
    assert [entry.value["vertex"] for entry in entries] == ["again", "again"]
