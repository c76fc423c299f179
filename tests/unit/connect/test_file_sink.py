"""FileSink: what a commit has made visible is there once, whatever is repeated; what does not fit is told."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.columns import Columns
from penstock.connect.file_sink import STAGING, FileSink
from penstock.errors import SettingError, UnstorableValueError
from penstock.graph.connector_api import WriteContext
from penstock.record import Record


class Rejections(list[tuple[Record, str]]):
    def __call__(self, record: Record, reason: str) -> None:
        self.append((record, reason))


def stage(sink: FileSink, *chunks: Any, reject: Any = None) -> Any:
    sink.prepare()
    worker = pickle.loads(pickle.dumps(sink))
    writer = worker.writer(WriteContext("job", "out", 0, "task", reject))
    for chunk in chunks:
        writer.write(chunk)
    return writer.finish()


def visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def rows(folder: Path) -> list[Any]:
    found = []
    for path in visible(folder):
        if path.suffix == ".parquet":
            found += pq.ParquetFile(path).read().to_pylist()
        else:
            found += [json.loads(line) for line in path.read_text().splitlines()]
    return found


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_a_commit_can_be_repeated_from_any_point(tmp_path: Path, format: str) -> None:
    sink = FileSink(tmp_path, format, max_records_per_file=2)
    records = [Record(None, {"n": n}) for n in range(5)]
    receipt = json.loads(json.dumps(stage(sink, records)))
    assert visible(tmp_path) == []
    assert len(receipt["files"]) == 3
    # A crash after the first of three renames.
    staged, final = receipt["files"][0]
    (tmp_path / STAGING / staged).rename(tmp_path / final)
    for _ in range(2):
        sink.commit(0, [receipt])
        assert rows(tmp_path) == [{"n": n} for n in range(5)]
    visible(tmp_path)[0].unlink()  # somebody has taken it away
    sink.commit(0, [receipt])
    assert len(rows(tmp_path)) == 3
    assert [path.suffix for path in (tmp_path / STAGING / "job").iterdir()] == [".done"]


def test_attempts_fresh_runs_and_two_sinks_of_one_task_never_share_a_name(tmp_path: Path) -> None:
    sink, other = FileSink(tmp_path, "json"), FileSink(tmp_path, "json")
    stage(sink, [Record(None, "lost")])
    kept = stage(sink, [Record(None, "kept")])
    beside = stage(other, [Record(None, "beside")])
    sink.commit(0, [kept])
    other.commit(0, [beside])
    sink.commit(0, [stage(sink, [Record(None, "fresh")])])
    assert sorted(rows(tmp_path)) == ["beside", "fresh", "kept"]


def test_nothing_written_is_no_file(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, "json")
    assert stage(sink, []) is None
    assert stage(sink, [Record(None, {1, 2})], reject=Rejections()) is None
    assert [path for path in (tmp_path / STAGING).rglob("*") if path.is_file()] == []


def test_json_takes_json_data_and_nothing_else(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, "json", key_column="k", ts_column="t")
    loop: list[Any] = []
    loop.append(loop)
    bad = [{1: 2}, b"x", float("nan"), {"k": 1}, datetime.now(UTC), [{"a": {2: 3}}], loop, "\ud800"]
    refused = Rejections()
    good = [Record("a", {"n": (1, None)}, 2.5), Record(None, "text", None)]
    sink.commit(0, [stage(sink, [*good, *(Record(None, value) for value in bad)], reject=refused)])
    assert rows(tmp_path) == [{"n": [1, None], "k": "a", "t": 2.5}, {"value": "text", "k": None, "t": None}]
    assert len(refused) == len(bad)
    assert refused[0][1] == "not JSON data: the key 1 of an object is not text"
    with pytest.raises(UnstorableValueError, match="bytes"):
        stage(sink, [Record(None, b"x")])


def test_parquet_with_a_schema(tmp_path: Path) -> None:
    schema = "n int not null, at timestamp, day date, tags array<string>, price decimal(8,2)"
    sink = FileSink(tmp_path, schema=schema, key_column="user", ts_column="ts", compression="snappy")
    moment = datetime(2020, 1, 2, tzinfo=UTC)
    good = Record("ada", {"n": 1, "at": moment, "day": date(2020, 1, 2), "tags": ["x"]}, 1.5)
    bad = [{"n": "x"}, {"m": 1, "n": 1}, {"at": moment}, {"n": 1 << 40}, {"n": 1, "user": 1}, 7]
    refused = Rejections()
    receipt = stage(sink, [good, *(Record("ada", value) for value in bad)], reject=refused)
    sink.commit(3, [receipt])
    [row] = rows(tmp_path)
    assert row.pop("ts") == datetime.fromtimestamp(1.5, UTC)
    assert row == {**good.value, "price": None, "user": "ada"}
    assert len(refused) == len(bad)
    assert "the field 'n' does not fit int32" in {str(r.value): why for r, why in refused}["{'n': 'x'}"]
    [path] = visible(tmp_path)
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "SNAPPY"
    with pytest.raises(UnstorableValueError, match="the field 'm' is not in the schema"):
        stage(sink, [Record(None, {"n": 1, "m": 1})])


def test_parquet_without_a_schema_takes_that_of_the_first_records(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    refused = Rejections()
    values = [{"a": 1, "b": None}, {"a": 2, "c": [1.5]}, {"a": "x"}, {"a": 3, "b": "y"}, {"a": {}}]
    receipt = stage(sink, [Record(None, value) for value in values], reject=refused)
    sink.commit(0, [receipt])
    assert rows(tmp_path) == [
        {"a": 1, "b": None, "c": None},
        {"a": 2, "b": None, "c": [1.5]},
        {"a": 3, "b": "y", "c": None},
    ]
    assert [record.value for record, _ in refused] == [{"a": "x"}, {"a": {}}]


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_columns_are_written_as_they_are(tmp_path: Path, format: str) -> None:
    sink = FileSink(tmp_path, format, key_column="k", ts_column="t", max_records_per_file=3)
    batch = pa.record_batch({"n": [1, 2, 3, 4]})
    columns = Columns(batch, pa.array(["a", "b", None, "d"]), pa.array([0.5, None, 1.5, 2.0]))
    receipt = stage(sink, columns, [Record("e", {"n": 5}, 3.0)])
    sink.commit(0, [receipt])
    assert [(row["n"], row["k"]) for row in rows(tmp_path)] == [
        (1, "a"),
        (2, "b"),
        (3, None),
        (4, "d"),
        (5, "e"),
    ]
    times = [row["t"] for row in rows(tmp_path)]
    if format == "parquet":
        times = [None if t is None else t.timestamp() for t in times]
    assert times == [0.5, None, 1.5, 2.0, 3.0]
    assert len(visible(tmp_path)) == 2


def test_columns_that_do_not_fit_are_refused_record_by_record(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, schema="n int")
    refused = Rejections()
    receipt = stage(sink, Columns(pa.record_batch({"n": [1, 1 << 40, 3]})), reject=refused)
    sink.commit(0, [receipt])
    assert rows(tmp_path) == [{"n": 1}, {"n": 3}]
    assert [record.value for record, _ in refused] == [{"n": 1 << 40}]


def test_files_that_spark_has_written_are_adopted(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, "json")
    sink.prepare()
    target = sink.native_target("job")
    place = Path(target["staging"]) / "attempt-1"
    place.mkdir(parents=True)
    for name in ("part-0.json", "part-1.json", "_SUCCESS", ".part-0.json.crc"):
        (place / name).write_text("1\n")
    receipt = json.loads(json.dumps(sink.adopt("job", 4, "x", sorted(place.iterdir()))))
    for _ in range(2):
        sink.commit(4, [receipt])
        assert rows(tmp_path) == [1, 1]
    assert all(path.name.startswith("part-000000004-x-") for path in visible(tmp_path))
    with pytest.raises(SettingError, match="is not in"):
        sink.adopt("job", 4, "x", ["../elsewhere"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "csv"}, "format is one of 'parquet', 'json', not 'csv'"),
        ({"format": "json", "schema": "n int"}, "schema is only for Parquet"),
        ({"compression": "rar"}, "compression is one of"),
        ({"key_column": ""}, "key_column takes text"),
        ({"key_column": "a", "ts_column": "a"}, "are both 'a'"),
        ({"max_records_per_file": 0}, "at least 1"),
    ],
)
def test_wrong_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        FileSink(tmp_path, **options)


def test_a_folder_that_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="cannot be written"):
        FileSink(tmp_path / "file").prepare()
