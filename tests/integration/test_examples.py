"""The examples do what they say."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.engine.storage.ledger import Ledger
from support import local_penstock
from support.engines import EITHER, LOCAL, SPARK
from support.running import Engine
from support.waiting import DEADLINE

EXAMPLES = Path(__file__).parents[2] / "examples"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_word_count_is_the_ten_lines_of_the_readme(spark: Engine) -> None:
    result = spark.feed(_load("wordcount").job, {"lines": ["to be or not", "to be"]})
    assert {r.key: r.value for r in result["counts"]} == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_file_types_recognises_and_discards_exactly_what_it_should(engine: Engine) -> None:
    """Seed of the example: loop limit 3, files nested up to 5 deep, unknown ones among them."""
    example = _load("file_types")
    made = example.samples()
    files = [sample.file for sample in made]
    job, _ = example.build(files)
    assert job.cycles() == [["V0", "V4", "V5"], ["V0", "V4", "V6"]]
    result = engine.feed(job, {job.sources[0]: files})
    recognised, discarded = example.expected(made)
    assert Counter(record.value for record in result[job.sinks[0]]) == Counter(recognised)
    assert Counter(d.record.value["name"] for d in result.discarded) == Counter(discarded)
    assert {(d.vertex, d.count) for d in result.discarded} == {("V0", 4)}


@pytest.mark.parametrize("engine_name", EITHER)
def test_file_types_as_a_program(engine_name: str) -> None:
    python = [sys.executable] if engine_name == SPARK else local_penstock.command(LOCAL)
    done = subprocess.run(
        [*python, str(EXAMPLES / "file_types.py")],
        env=local_penstock.environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "exactly as expected" in done.stdout


def test_an_order_is_shipped_when_its_payment_has_come(engine: Engine) -> None:
    result = engine.feed(
        _load("sync_join").job,
        {
            "orders": [("o1", {"item": "lamp", "price": 40}), ("o2", {"item": "desk", "price": 90})],
            "payments": [("o2", {"amount": 80}), ("o3", {"amount": 1}), ("o1", {"amount": 40})],
        },
        batch=1,
    )
    assert [tuple(r)[:2] for r in result["shipped"]] == [("o1", {"item": "lamp", "price": 40, "amount": 40})]
    assert [r.key for r in result["questions"]] == ["o2"]


def test_late_readings_are_counted_apart(engine: Engine) -> None:
    example = _load("late_data")
    for batch in (7, None):
        result = engine.feed(example.job, {"readings": example.readings()}, batch=batch)
        assert Counter((r.key, *r.value.values()) for r in result["minutes"]) == Counter(
            {(f"sensor-{s}", m, 21 if (s, m) == (0, 0) else 20): 1 for s in (0, 1) for m in (0, 1, 2)}
        )
        assert [(entry.vertex, entry.key, entry.ts) for entry in result.late] == [("count", "sensor-1", 5.0)]
        assert [tuple(r)[:2] for r in result["missed"]] == [("sensor-1", 1)]


def test_one_input_many_sinks(engine: Engine) -> None:
    lines = ["GET /a 200 12", "GET /b 503 1500", "nonsense", "PUT /a 500 1001", "GET /a 200 1800"]
    result = engine.feed(_load("multi_sink").job, {"lines": lines})
    assert len(result["archive"]) == 4
    assert Counter(r.key for r in result["alarms"]) == {"/b": 1, "/a": 1}
    assert {r.key: r.value for r in result["slowest-paths"]} == {"/b": 1500.0, "/a": 1800.0}
    assert [(entry.vertex, entry.error, entry.value) for entry in result.errors] == [
        ("parse", "ValueError", "nonsense")
    ]


def test_a_source_and_a_sink_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setenv("SENSORS_DB", str(tmp_path / "sensors.db"))
    example = _load("custom_source")
    readings = [example.reading(s, n) for s in range(example.SENSORS) for n in range(example.READINGS)]
    expected = Counter(r.key for r in readings if r.value > example.TOO_WARM)
    report = engine.run(example.job)
    assert report.records_in == len(readings)
    assert report.batches == 4
    with closing(sqlite3.connect(example.DATABASE)) as database:
        assert dict(database.execute("SELECT key, value FROM latest")) == expected
        [(applied,)] = database.execute("SELECT count(*) FROM applied")
    entry = Ledger(tmp_path / "jobs" / "sensors" / "ledger").latest()
    assert entry is not None
    sink = example.SqliteSink(example.DATABASE)
    sink.commit(entry.batch, entry.receipts["table"])
    with closing(sqlite3.connect(example.DATABASE)) as database:
        assert database.execute("SELECT count(*) FROM applied").fetchone() == (applied,), "applied once"
    assert engine.run(example.job).batches == 0


def test_sql_beside_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Engine) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sales").mkdir()
    lines = [("ada", "fr", 30.0), ("bob", "de", 4.0), ("cy", "de", 12.5), ("di", "fr", 10.0)]
    for number, (user, country, amount) in enumerate(lines):
        line = json.dumps({"user": user, "country": country, "amount": amount})
        (tmp_path / "sales" / f"{number}.json").write_text(line)
    spark.run(_load("sql").job)
    totals = ps.Log.open(tmp_path / "home" / "logs" / "totals")
    last = {
        record.key: record.value
        for partition in range(totals.partitions)
        for records in totals.read(partition, 0, totals.end(partition))
        for record in records
    }
    assert last == {"FR": 40.0, "DE": 12.5}
    found = [
        (row["user"], row["country"])
        for path in (tmp_path / "large-sales").glob("*.parquet")
        for row in pq.ParquetFile(path).read().to_pylist()
    ]
    assert sorted(found) == [("ada", "FR"), ("cy", "DE"), ("di", "FR")]
