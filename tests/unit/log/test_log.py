"""The contract of a log: what is appended is read, in order, by position."""

from __future__ import annotations

import pickle
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import LogError, LogExistsError, LogNotFoundError, SettingError, UnstorableValueError
from penstock.key_hash import key_hash
from penstock.log import Log, home, log_folder, record_codec
from penstock.record import Record


def values(log: Log, partition: int = 0, start: int = 0, end: int | None = None) -> list[object]:
    return [record.value for chunk in log.read(partition, start, end) for record in chunk]


def numbered(first: int, last: int) -> list[Record]:
    return [Record(None, number, float(number)) for number in range(first, last)]


def test_append_then_read(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "a" / "orders")
    assert (log.name, log.partitions, log.path) == ("orders", 1, tmp_path / "a" / "orders")
    assert (log.begin(0), log.end(0), list(log.read(0, 0))) == (0, 0, [])
    log.append([Record("k", 1, 2.5), Record("k", 2)], now=7.0)
    assert list(log.read(0, 0)) == [[Record("k", 1, 2.5), Record("k", 2, 7.0)]]
    assert (log.begin(0), log.end(0), log.ends()) == (0, 2, [2])


def test_another_process_sees_what_was_appended_after_it_looked(tmp_path: Path) -> None:
    writer = Log.create(tmp_path / "orders")
    reader = Log.open(tmp_path / "orders")
    assert reader.end(0) == 0
    writer.append(numbered(0, 3))
    writer.append(numbered(3, 4))
    assert reader.end(0) == 4
    assert values(reader) == [0, 1, 2, 3]
    reader.append(numbered(4, 6))
    assert values(writer) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("fresh", [True, False])
def test_every_slice(tmp_path: Path, fresh: bool) -> None:
    log = Log.create(tmp_path / "orders")
    for first, last in ((0, 3), (3, 4), (4, 9)):
        log.append(numbered(first, last))
    for start in range(10):
        for end in range(start, 12):
            source = Log.open(log.path) if fresh else log
            assert values(source, 0, start, end) == list(range(start, min(end, 9))), (start, end)


def test_long_segments_come_in_lists_of_bounded_length(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders")
    log.append(numbered(0, 40_000))
    chunks = list(log.read(0, 100))
    assert [len(chunk) for chunk in chunks] == [record_codec.CHUNK] * (39_900 // record_codec.CHUNK) + [
        39_900 % record_codec.CHUNK
    ]
    assert values(log, 0, 100) == list(range(100, 40_000))


def test_a_read_ends_where_the_log_ended_when_it_began(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders")
    log.append(numbered(0, 2))
    chunks = log.read(0, 0)
    log.append(numbered(2, 4))
    assert [record.value for chunk in chunks for record in chunk] == [0, 1]


@pytest.mark.parametrize("start", [-1, 3])
def test_a_position_that_is_not_there_is_refused_at_once(tmp_path: Path, start: int) -> None:
    log = Log.create(tmp_path / "orders")
    log.append(numbered(0, 2))
    with pytest.raises(LogError, match=f"no position {start}: it begins at 0 and ends at 2"):
        log.read(0, start)
    with pytest.raises(LogError, match=f"no position {start}"):
        log.tail(0, start)


@pytest.mark.parametrize("partition", [-1, 2])
def test_a_partition_that_is_not_there(tmp_path: Path, partition: int) -> None:
    log = Log.create(tmp_path / "orders", partitions=2)
    with pytest.raises(LogError, match=f"no partition {partition}"):
        log.read(partition, 0)
    with pytest.raises(LogError, match=f"no partition {partition}"):
        log.append(numbered(0, 1), partition)


def test_a_key_always_goes_to_the_partition_of_its_hash(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders", partitions=3)
    keys = ["a", "b", "c", 1, 2.5, (1, "x"), b"raw", True]
    log.append([Record(key, "first") for key in keys])
    log.append([Record(key, "second") for key in keys])
    for partition in range(3):
        expected = [key for key in keys if key_hash(key) % 3 == partition]
        assert [record.key for chunk in log.read(partition, 0) for record in chunk] == expected * 2


def test_records_without_a_key_go_to_one_partition_in_turn(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders", partitions=3)
    for call in range(4):
        log.append([Record(None, (call, index)) for index in range(5)])
    assert [log.end(partition) for partition in range(3)] == [10, 5, 5]
    assert log.stat().partitions[0].segments == 2


def test_one_append_is_one_segment_a_partition(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders", partitions=2)
    log.append(numbered(0, 5), partition=1)
    assert [one.segments for one in log.stat().partitions] == [0, 1]
    assert values(log, 1) == [0, 1, 2, 3, 4]


def test_nothing_appended_is_nothing_written(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders")
    log.append([])
    assert log.stat().partitions[0].segments == 0


def test_one_bad_value_stores_nothing(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders", partitions=4)
    records = [Record(key, 1) for key in "abcdefgh"]
    for bad in (Record("z", object()), Record(object(), 1)):
        with pytest.raises(UnstorableValueError, match="type object"):
            log.append([*records, bad])
    assert log.ends() == [0, 0, 0, 0]
    assert list((log.path / "staging").iterdir()) == []


def test_only_records_are_taken(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders")
    with pytest.raises(LogError, match="takes Records, not tuple"):
        log.append([("a", 1)])  # type: ignore[list-item]


def test_create_and_open(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    with pytest.raises(LogNotFoundError, match="penstock log create orders"):
        Log.open(path)
    Log.create(path, partitions=2).append([Record("k", 1)])
    with pytest.raises(LogExistsError, match="already"):
        Log.create(path, partitions=2)
    assert sum(Log.create(path, exist_ok=True).ends()) == 1
    assert Log.create(path, 2, exist_ok=True).partitions == 2
    with pytest.raises(LogExistsError, match="has 2 partitions, not 3"):
        Log.create(path, 3, exist_ok=True)
    assert sorted(entry.name for entry in path.iterdir()) == [
        "log.json",
        "p00000",
        "p00001",
        "readers",
        "staging",
    ]


@pytest.mark.parametrize("partitions", [0, -1, 100_000])
def test_a_number_of_partitions_that_makes_no_sense(tmp_path: Path, partitions: int) -> None:
    with pytest.raises(SettingError, match="partitions"):
        Log.create(tmp_path / "orders", partitions)
    assert not (tmp_path / "orders").exists()


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "orders").write_text("mine")
    with pytest.raises(LogError, match="not a folder"):
        Log.create(tmp_path / "orders")


def test_everything_belongs_to_its_user_alone(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "deep" / "er" / "orders", partitions=2)
    log.append(numbered(0, 3), partition=0)
    log.stage(1, numbered(0, 1))
    entries = [tmp_path / "deep", *(tmp_path / "deep").rglob("*")]
    assert len(entries) == 12
    for entry in entries:
        assert stat.S_IMODE(entry.stat().st_mode) == (0o700 if entry.is_dir() else 0o600), entry


def test_foreign_files_in_a_partition_are_ignored(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders")
    log.append(numbered(0, 2))
    for name in ("notes.txt", "00000000000000000099.seg.tmp", "99.seg"):
        (log.path / "p00000" / name).write_text("x")
    assert Log.open(log.path).end(0) == 2
    assert Log.open(log.path).stat(verify=True).partitions[0].segments == 1


def test_a_listing_that_misses_segments_does_not_mislead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.log.partition import Partition

    writer = Log.create(tmp_path / "orders")
    for number in range(6):
        writer.append(numbered(number, number + 1))
    reader = Log.open(writer.path)
    monkeypatch.setattr(Partition, "listed", lambda self: [1, 3])
    assert (reader.begin(0), reader.end(0)) == (0, 6)
    assert [values(reader, 0, start) for start in (0, 2, 4)] == [[0, 1, 2, 3, 4, 5], [2, 3, 4, 5], [4, 5]]


def test_a_log_travels_to_another_process_as_its_path(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders", fsync="full")
    copy = pickle.loads(pickle.dumps(log))
    copy.append(numbered(0, 1))
    assert (copy.path, copy.id, copy.fsync, values(log)) == (log.path, log.id, "full", [0])


def test_names_and_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    assert home() == tmp_path
    assert log_folder("orders") == tmp_path / "logs" / "orders"
    assert log_folder("a.b-c_9", root="/x") == Path("/x/logs/a.b-c_9")
    monkeypatch.delenv("PENSTOCK_HOME")
    assert home() == Path.home() / ".penstock"


@pytest.mark.parametrize("name", ["", ".", "..", "a..b", "a/b", "-a", ".a", "a b", "é", "a\n", "x" * 201])
def test_names_that_could_leave_the_folder(name: str) -> None:
    with pytest.raises(SettingError, match="cannot name a log"):
        log_folder(name)


def test_importing_the_log_loads_nothing_heavy() -> None:
    code = "import sys; from penstock.log import *; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "penstock" in loaded
    assert not loaded & {"pyspark", "pandas", "pyarrow", "numpy"}
