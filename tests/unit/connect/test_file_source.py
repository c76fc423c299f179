"""FileSource: every file once and whole, in an order that never changes; what cannot be read is told."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.columns import Columns
from penstock.connect.file_index import FileIndex, IndexedFile
from penstock.connect.file_source import FileSource
from penstock.errors import FolderError, SettingError
from penstock.graph.connector_api import Rejected
from penstock.record import Record


def write(folder: Path, name: str, content: str | bytes, changed: float | None = None) -> None:
    """Write a file elsewhere and rename it, as documented."""
    data = content.encode() if isinstance(content, str) else content
    hidden = folder / f".{name}"
    hidden.write_bytes(data)
    if changed is not None:
        os.utime(hidden, (changed, changed))
    hidden.rename(folder / name)


def take(source: FileSource, start: Any, end: Any) -> tuple[list[Record], list[tuple[Any, str]]]:
    records: list[Record] = []
    rejected: list[tuple[Any, str]] = []
    for split in source.splits(start, end):
        for part in source.read(split):
            if isinstance(part, Rejected):
                rejected += part.pieces
            else:
                records += part.records() if isinstance(part, Columns) else part
    return records, rejected


def everything(source: FileSource) -> tuple[list[Record], list[tuple[Any, str]]]:
    start = source.begin()
    return take(source, start, source.latest(start))


def values(source: FileSource, start: Any, end: Any) -> list[Any]:
    return [record.value for record in take(source, start, end)[0]]


def test_a_file_that_is_older_than_all_that_were_read_is_read_too(tmp_path: Path) -> None:
    source = FileSource(tmp_path, partitions=1)
    write(tmp_path, "b", "1\n", changed=200)
    write(tmp_path, "a", "2\n3", changed=200)
    start = source.begin()
    first = source.latest(start)
    assert values(source, start, first) == ["2", "3", "1"], "the same time: by name"
    write(tmp_path, "late", "4\n", changed=100)
    second = source.latest(first)
    assert values(source, first, second) == ["4"]
    assert source.latest(second) == second
    assert values(source, start, second) == ["2", "3", "1", "4"], "and in that order for ever"


def test_readers_in_other_processes_count_the_files_alike(tmp_path: Path) -> None:
    driver = FileSource(tmp_path)
    planner = pickle.loads(pickle.dumps(driver))
    start = driver.begin()
    for number in range(20):
        write(tmp_path, f"{number}", f"{number}\n", changed=1000 - number)
        assert (driver if number % 2 else planner).latest(start)["files"] == number + 1
    assert driver.latest(start) == planner.latest(start)
    ends = driver.latest(start)
    assert sorted(values(planner, start, ends)) == sorted(str(n) for n in range(20))
    other = FileSource(tmp_path)
    assert other.begin() == start, "another job starts at the beginning, with the same order"
    assert values(other, start, ends) == values(driver, start, ends)


def test_many_who_look_at_the_same_time_write_each_name_once(tmp_path: Path) -> None:
    names = [f"{n:03d}" for n in range(200)]
    seen: list[list[IndexedFile]] = []

    def look() -> None:
        found = FileIndex(tmp_path, "*")
        while len(found.update()) < len(names):
            pass
        seen.append(found.update())

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for name in names:
        write(tmp_path, name, name)
    for thread in threads:
        thread.join(60)
    assert len(seen) == 4
    assert all(files == seen[0] for files in seen)
    assert sorted(file.name for file in seen[0]) == names


def test_a_file_is_found_though_the_folder_was_listed_a_moment_before(tmp_path: Path) -> None:
    now = [1000.0]
    found = FileIndex(tmp_path, "*", clock=lambda: now[0])
    os.utime(tmp_path, (500, 500))
    found.update()  # makes the index, which changes the folder
    os.utime(tmp_path, (500, 500))
    found.update()
    write(tmp_path, "a", "1")
    os.utime(tmp_path, (500, 500))  # a file system that cannot tell the two times apart
    assert found.update() == [], "settled: the folder says that nothing has changed"
    now[0] += 31
    assert [file.name for file in found.update()] == ["a"], "and is not believed for ever"


def test_a_file_keeps_its_lane_however_batches_are_cut(tmp_path: Path) -> None:
    for number in range(7):
        write(tmp_path, f"{number}", f"{number}\n", changed=number + 1)
    source = FileSource(tmp_path, partitions=3, max_files_per_batch=2)
    position, seen = source.begin(), []
    while (end := source.latest(position)) != position:
        splits = source.splits(position, end)
        assert len(splits) == len({source.lane(split) for split in splits})
        for split in splits:
            for part in source.read(split):
                assert isinstance(part, list)
                seen += [(source.lane(split), record.value) for record in part]
        position = end
    assert sorted(seen) == sorted((str(n % 3), str(n)) for n in range(7))


def test_a_lane_of_empty_files_is_not_waited_for(tmp_path: Path) -> None:
    for number, content in enumerate(["x\n", "", "", "x\n", ""]):
        write(tmp_path, f"{number}", content, changed=number + 1)
    source = FileSource(tmp_path, partitions=3)
    assert source.lanes(source.begin()) == ["0"]
    assert FileSource(tmp_path, partitions=2).lanes(source.begin()) == ["0", "1"]


def test_a_batch_takes_files_up_to_a_size_and_at_least_one(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path, name, "x" * 100 + "\n", changed=1)
    source = FileSource(tmp_path, max_bytes_per_batch=250)
    first = source.latest(source.begin())
    assert first["files"] == 2
    assert FileSource(tmp_path, max_bytes_per_batch=1).latest(first)["files"] == 3


def test_hidden_files_folders_and_other_patterns_are_not_read(tmp_path: Path) -> None:
    for name in (".hidden", "_SUCCESS", "a.csv", "b.txt"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "folder.txt").mkdir()
    assert len(everything(FileSource(tmp_path, pattern="*.txt"))[0]) == 1
    assert len(everything(FileSource(tmp_path))[0]) == 2


def test_what_is_added_to_a_file_that_was_read_is_not_read(tmp_path: Path) -> None:
    source = FileSource(tmp_path)
    write(tmp_path, "a", "1\n")
    end = source.latest(source.begin())
    (tmp_path / "a").write_text("1\n2\n")
    assert source.latest(end) == end
    with pytest.raises(FolderError, match=r"a has changed since it was found: it had 2 bytes.*4 now"):
        take(source, source.begin(), end)


def test_a_file_that_is_gone_matters_only_when_it_has_to_be_read(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path, name, f"{name}\n", changed=ord(name))
    source = FileSource(tmp_path, partitions=1)
    start = source.begin()
    end = source.latest(start)
    (tmp_path / "a").unlink()
    assert source.latest(end) == end
    assert FileSource(tmp_path).begin()["files"] == 1, "a new reader starts with what is still there"
    (tmp_path / "b").unlink()
    with pytest.raises(FolderError, match=r"removed before it was read.*ignore_missing=True"):
        take(source, start, end)
    assert values(FileSource(tmp_path, partitions=1, ignore_missing=True), start, end) == ["c"]


def test_a_folder_that_was_replaced_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder, "a", "1\n")
    end = FileSource(folder).latest(FileSource(folder).begin())
    folder.rename(tmp_path / "old")
    folder.mkdir()
    for name in "abc":
        write(folder, name, "1\n")
    with pytest.raises(FolderError, match=r"not the folder.*fresh=True"):
        FileSource(folder).latest(end)
    assert FileSource(folder).latest(FileSource(folder).begin())["files"] == 3


def test_an_index_that_a_crash_cut_off_is_mended(tmp_path: Path) -> None:
    source = FileSource(tmp_path)
    write(tmp_path, "a", "1\n")
    start = source.begin()
    end = source.latest(start)
    [index] = (tmp_path / ".penstock").iterdir()
    with index.open("ab") as file:
        file.write(b'["half-a-na')
    write(tmp_path, "b", "2\n")
    fresh = FileSource(tmp_path)
    later = fresh.latest(end)
    assert values(fresh, start, later) == ["1", "2"]
    assert source.latest(end) == later
    index.write_bytes(b"nonsense\n")
    with pytest.raises(FolderError, match="damaged"):
        FileSource(tmp_path).begin()


def test_the_index_may_be_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder, "a", "1\n")
    assert len(everything(FileSource(folder, index=tmp_path / "index"))[0]) == 1
    assert sorted(os.listdir(folder)) == ["a"]


def test_a_missing_folder_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"there is no folder .*/nowhere"):
        FileSource(tmp_path / "nowhere").begin()


def test_lines(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", b"\xef\xbb\xbfone\r\ntwo\nbad \xff\n\nlast")
    write(tmp_path, "b.gz", gzip.compress(b"three\n"))
    source = FileSource(tmp_path, partitions=1, key=len, ts=lambda line: 5)
    records, rejected = everything(source)
    assert records == [Record(len(line), line, 5.0) for line in ("one", "two", "", "last", "three")]
    assert rejected == [(b"bad \xff", "a.txt, line 3: not UTF-8")]


def test_json_lines(tmp_path: Path) -> None:
    rows = [
        '{"user": "ada", "at": "1970-01-01T00:00:01Z", "n": 1}',
        '{"user": "bob"}',
        "{oops",
        "",
        '{"user": "eve", "at": "yesterday"}',
        "NaN",
        "[1]",
    ]
    write(tmp_path, "a.json", "\n".join(rows))
    records, rejected = everything(FileSource(tmp_path, "json", key="user", ts="at"))
    assert records == [Record("ada", json.loads(rows[0]), 1.0)]
    assert [raw for raw, _ in rejected] == [rows[1], rows[2], *rows[4:]]
    assert [reason for _, reason in rejected] == [
        "a.json, line 2: there is no field 'at'",
        "a.json, line 3: not JSON: Expecting property name enclosed in double quotes at column 2",
        "a.json, line 5: 'yesterday' is not a time: neither seconds since the epoch nor ISO 8601",
        "a.json, line 6: NaN is not JSON",
        "a.json, line 7: there is no field 'user'",
    ]
    records, rejected = everything(FileSource(tmp_path, "json", schema="user string not null, n long"))
    assert [r.value for r in records] == [
        {"user": "ada", "n": 1},
        {"user": "bob", "n": None},
        {"user": "eve", "n": None},
    ]
    assert len(rejected) == 3


def test_csv_with_header(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", 'user,n\nada,1\n"bo\nb",2\n\ncat\neve,"x"y\nfay,4\n')
    records, rejected = everything(FileSource(tmp_path, "csv", key="user"))
    assert [tuple(r)[:2] for r in records] == [
        ("ada", {"user": "ada", "n": "1"}),
        ("bo\nb", {"user": "bo\nb", "n": "2"}),
        ("fay", {"user": "fay", "n": "4"}),
    ]
    assert rejected == [
        ("cat", "a.csv, line 6: 1 fields, not 2"),
        ('eve,"x"y', "a.csv, line 7: not CSV: ',' expected after '\"'"),
    ]


def test_csv_with_schema(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "ada;7;1970-01-01;true\nbob;x;;\ncat;;2000-02-03T04:05:06+01:00;FALSE\n")
    schema = "user string, n int, at timestamp, ok boolean"
    source = FileSource(
        tmp_path, "csv", schema=schema, header=False, separator=";", columns=["n", "ok"], ts="at"
    )
    records, rejected = everything(source)
    moment = datetime(2000, 2, 3, 3, 5, 6, tzinfo=UTC)
    assert records == [
        Record(None, {"n": 7, "ok": True}, 0.0),
        Record(None, {"n": None, "ok": False}, moment.timestamp()),
    ]
    assert rejected == [("bob;x;;", "a.csv, line 2: field 'n': 'x' is not a int")]


def test_csv_whose_header_has_not_what_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "user,n\nada,1\n")
    records, rejected = everything(FileSource(tmp_path, "csv", key="name"))
    assert records == []
    assert rejected == [("user,n", "a.csv, line 1: there is no column 'name', so this file is not read")]


def test_parquet_comes_as_columns(tmp_path: Path) -> None:
    table = pa.table(
        {
            "user": pa.array(["ada", "bob"]).dictionary_encode(),
            "n": [1, 2],
            "at": pa.array([1_500, None], pa.timestamp("ms")),
            "unused": [b"x", b"y"],
        }
    )
    pq.write_table(table, tmp_path / ".a")
    (tmp_path / ".a").rename(tmp_path / "a.parquet")
    source = FileSource(tmp_path, "parquet", key="user", ts="at", columns=["n"])
    start = source.begin()
    [split] = source.splits(start, source.latest(start))
    [columns] = source.read(split)
    assert isinstance(columns, Columns)
    assert columns.values.schema.names == ["n"]
    assert columns.records() == [Record("ada", {"n": 1}, 1.5), Record("bob", {"n": 2}, None)]
    fitted, _ = everything(FileSource(tmp_path, "parquet", schema="n double, user string"))
    assert fitted[0].value == {"n": 1.0, "user": "ada"}
    _, rejected = everything(FileSource(tmp_path, "parquet", schema="n long, gone string"))
    assert rejected == [("a.parquet", "a.parquet: there is no column 'gone'")]
    _, rejected = everything(FileSource(tmp_path, "parquet", schema="user long"))
    assert rejected[0][0] == "a.parquet"


def test_whole_files_that_cannot_be_read_are_rejected(tmp_path: Path) -> None:
    write(tmp_path, "a.gz", "not gzip")
    write(tmp_path, "b.gz", gzip.compress(b"one\ntwo\n" * 1000)[:-20])
    _, rejected = everything(FileSource(tmp_path))
    assert [name for name, _ in rejected] == ["a.gz", "b.gz"]
    assert "a.gz cannot be read to its end: BadGzipFile" in rejected[0][1]
    parquet = tmp_path / "parquet"
    parquet.mkdir()
    write(parquet, "c", "PAR1 is not all of it")
    pq.write_table(pa.table({"n": list(range(1000))}), parquet / ".d")
    write(parquet, "d", (parquet / ".d").read_bytes()[:-100])
    records, rejected = everything(FileSource(parquet, "parquet"))
    assert records == []
    assert sorted(name for name, _ in rejected) == ["c", "d"]


def test_what_spark_needs_to_read_the_files_itself(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "n;m\n1;2\n")
    source = FileSource(tmp_path, "csv", schema="n BIGINT, m int", separator=";", ts="n")
    start = source.begin()
    end = source.latest(start)
    assert source.native(start, end) == {
        "format": "csv",
        "paths": [str(tmp_path / "a.csv")],
        "schema": "n long, m int",
        "options": {"header": "true", "sep": ";"},
        "columns": None,
        "key": None,
        "ts": "n",
    }
    assert FileSource(tmp_path, "csv", ts=lambda v: 1).native(start, end) is None
    write(tmp_path, "b*.csv", "n;m\n")
    assert source.native(start, source.latest(end)) is None, "Spark would take the name for a pattern"
    (tmp_path / "a.csv").unlink()
    with pytest.raises(FolderError, match="removed before"):
        source.native(start, end)


def test_it_describes_itself_without_what_may_change(tmp_path: Path) -> None:
    source = FileSource(tmp_path, "csv", key="user", ts=lambda v: 1, partitions=7, schema="user string")
    assert source.describe() == {
        "folder": str(tmp_path),
        "format": "csv",
        "key": "user",
        "ts": "a function",
        "schema": "user string",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "xml"}, "format is one of 'lines', 'csv', 'json', 'parquet', not 'xml'"),
        ({"key": "user"}, "a line has no fields"),
        ({"format": "parquet", "ts": len}, "takes the name of a column"),
        ({"format": "csv", "key": 3}, "a field or a function"),
        ({"format": "csv", "header": False}, "need schema="),
        ({"format": "csv", "schema": "n"}, "FileSource: schema 'n'"),
        ({"format": "csv", "schema": "n number"}, "'number' is not a type"),
        ({"format": "csv", "schema": "n int, n int"}, "the field 'n' is declared twice"),
        ({"format": "csv", "schema": "n int", "key": "m"}, "key names 'm', which is not in the schema"),
        ({"format": "csv", "separator": ",,"}, "one character"),
        ({"schema": "n int"}, "lines have no schema"),
        ({"partitions": 0}, "at least 1"),
        ({"max_files_per_batch": True}, "whole number"),
        ({"columns": ["a"]}, "columns takes a list of names"),
    ],
)
def test_wrong_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        FileSource(tmp_path, **options)
