"""The log as source and sink: positions that know their log, readers, and records that cannot be stored."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest

from penstock.connect.log_connectors import LogSink, LogSource
from penstock.errors import LogError, LogNotFoundError, UnstorableValueError
from penstock.graph.connector_api import Position, WriteContext
from penstock.log import Log, log_folder
from penstock.record import Record


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return make(tmp_path)


def make(root: Path, records: int = 4) -> Log:
    log = Log.create(log_folder("in", root), partitions=2, upkeep=False)
    for number in range(records):
        log.append([Record(None, number)], partition=number % 2)
    return log


def source(root: Path, **options: int | None) -> LogSource:
    return LogSource("in", root=root, **options)


def through_json(position: Position) -> Position:
    found: Position = json.loads(json.dumps(position))
    assert found == position
    return found


def test_positions_name_their_log(log: Log, tmp_path: Path) -> None:
    mine = source(tmp_path)
    begin = through_json(mine.begin())
    assert log.id is not None
    assert begin == {"0": 0, "1": 0, "id": int(log.id[:13], 16)}
    assert begin["id"] < 1 << 53
    latest = through_json(mine.latest(begin))
    assert (latest["0"], latest["1"], latest["id"]) == (2, 2, begin["id"])
    assert mine.latest(latest) == latest
    assert mine.splits(begin, latest) == [(0, 0, 2), (1, 0, 2)]
    assert [mine.lane(split) for split in mine.splits(begin, latest)] == ["0", "1"]
    assert (mine.lag(begin), mine.lag(latest)) == (4, 0)
    assert mine.describe() == {"log": "in"}


def test_a_limit_is_shared(log: Log, tmp_path: Path) -> None:
    mine = source(tmp_path, max_records_per_batch=2)
    position, seen = mine.begin(), []
    while (latest := mine.latest(position)) != position:
        seen.append((latest["0"], latest["1"]))
        position = latest
    assert seen == [(1, 1), (2, 2)]


def test_positions_from_before_logs_had_ids(log: Log, tmp_path: Path) -> None:
    mine = source(tmp_path)
    old = {"0": 2, "1": 2}
    assert mine.latest(old) == old
    assert mine.splits({"0": 1, "1": 2}, old) == [(0, 1, 2)]
    assert mine.latest({}) == mine.latest(mine.begin())
    log.append([Record(None, 9)], partition=0)
    assert mine.latest(old) == {"0": 3, "1": 2, "id": mine.begin()["id"]}


@pytest.mark.parametrize("records", [0, 4, 8])
@pytest.mark.parametrize("running", [True, False])
def test_a_log_that_was_made_anew_is_another(log: Log, tmp_path: Path, records: int, running: bool) -> None:
    mine = source(tmp_path)
    position = mine.latest(mine.begin())
    shutil.rmtree(log.path)
    with pytest.raises(LogNotFoundError):
        mine.latest(position)
    make(tmp_path, records)
    after = mine if running else source(tmp_path)
    with pytest.raises(LogError, match=r"not the log that the job has read.*--fresh"):
        after.latest(position)
    with pytest.raises(LogError, match="not the log that the job has read"):
        after.splits({"0": 0, "1": 0}, position)
    assert after.begin()["id"] != position["id"]
    assert after.lag(after.begin()) == records


def test_settings_do_not_make_it_another(log: Log, tmp_path: Path) -> None:
    from penstock.log import Retention

    mine = source(tmp_path)
    position = mine.latest(mine.begin())
    log.set_retention(Retention(bytes=1000))
    assert mine.latest(position) == position


def test_what_retention_took_from_a_job_is_said(tmp_path: Path) -> None:
    log = Log.create(log_folder("in", tmp_path), retain_bytes=1, upkeep=False)
    mine = source(tmp_path)
    position = mine.begin()
    for number in range(3):
        log.append([Record(None, number)])
    split = mine.splits(position, mine.latest(position))[0]
    log.retain()
    with pytest.raises(LogError, match=r"positions before 2 are gone, and the job has read up to 0.*--fresh"):
        mine.latest(position)
    with pytest.raises(LogError, match="positions before 2 are gone"):
        list(mine.read(split))
    assert mine.begin()["0"] == 2


def test_readers_are_noted(log: Log, tmp_path: Path) -> None:
    mine = source(tmp_path)
    mine.committed({"0": 1, "1": 2, "id": 7}, "shop.in")
    pickle.loads(pickle.dumps(mine)).committed({"0": 2}, "other.in")
    assert [(reader.name, reader.positions) for reader in log.readers()] == [
        ("other.in", {0: 2}),
        ("shop.in", {0: 1, 1: 2}),
    ]
    assert [(reader.name, reader.lag) for reader in log.stat().readers] == [("other.in", 2), ("shop.in", 1)]
    noted = log.readers()[1].time
    mine.committed({"0": 1, "1": 2, "id": 7}, "shop.in")
    assert log.readers()[1].time == noted
    mine.committed({"0": 0, "1": 0, "id": 7}, "shop.in")
    assert log.readers()[1].positions == {0: 0, 1: 0}
    assert list((log.path / "staging").iterdir()) == []


@pytest.mark.parametrize(
    "name", ["..", ".", "a/b", "../../etc/x", "", "é", "x" * 400, "A.b", "a.b", "a%2Fb", "\ud800", "a\nb"]
)
def test_any_name_of_a_reader_is_safe(log: Log, name: str) -> None:
    before = {path for path in log.path.parent.rglob("*") if path.is_file()}
    log.note_reader("bystander", {0: 1})
    log.note_reader(name, {0: 3})
    new = {path for path in log.path.parent.rglob("*") if path.is_file()} - before
    assert {path.parent for path in new} == {log.path / "readers"}
    assert sorted((reader.name, reader.positions[0]) for reader in log.readers()) == sorted(
        [("bystander", 1), (name, 3)]
    )
    log.forget_reader(name)
    assert [reader.name for reader in log.readers()] == ["bystander"]


def test_forgetting_never_leaves_the_folder(log: Log) -> None:
    with pytest.raises(LogError, match="no reader"):
        log.forget_reader("../log")
    assert (log.path / "log.json").exists()


def test_a_reader_goes_on_when_its_position_cannot_be_noted(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    mine = source(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("penstock.log.reader_positions.os.open", refuse)
        mine.committed({"0": 1, "1": 1}, "shop.in")
    assert log.readers() == []
    mine.committed({"0": 1, "1": 1}, "shop.in")
    assert len(log.readers()) == 1


def context(rejected: list[tuple[Record, str]] | None) -> WriteContext:
    reject = None if rejected is None else lambda record, reason: rejected.append((record, reason))
    return WriteContext("job", "out", 0, "task", reject)


BAD = [Record("b", object()), Record(object(), 1), Record("c", 1, "noon"), Record("d", {"x": {1, object}})]  # type: ignore[arg-type]
GOOD = [Record("a", 1, 1.0), Record("e", (1, 2), 2.0), Record(None, None, 3.0)]


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_cannot_be_stored_is_rejected_and_the_rest_stored(tmp_path: Path, partitions: int) -> None:
    sink = LogSink("out", root=tmp_path, partitions=partitions)
    sink.prepare()
    rejected: list[tuple[Record, str]] = []
    writer = sink.writer(context(rejected))
    writer.write([GOOD[0], BAD[0], BAD[1], GOOD[1]])
    writer.write([BAD[2], BAD[3], GOOD[2]])
    sink.commit(0, [writer.finish()])
    out = Log.open(log_folder("out", tmp_path))
    stored = [record for p in range(partitions) for chunk in out.read(p, 0) for record in chunk]
    assert sorted(stored, key=lambda record: record.ts or 0) == GOOD
    assert sorted(map(id, (record for record, _ in rejected))) == sorted(map(id, BAD))
    reasons = {id(record): reason for record, reason in rejected}
    assert "a value of type object" in reasons[id(BAD[0])]
    assert "ts must be seconds" in reasons[id(BAD[2])]


def test_nothing_that_can_be_stored_stores_nothing(tmp_path: Path) -> None:
    sink = LogSink("out", root=tmp_path)
    sink.prepare()
    rejected: list[tuple[Record, str]] = []
    writer = sink.writer(context(rejected))
    writer.write(BAD[:2])
    assert writer.finish() is None
    assert len(rejected) == 2


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("bad", BAD[:2])
def test_without_a_place_for_them_they_end_the_job(tmp_path: Path, bad: Record, partitions: int) -> None:
    sink = LogSink("out", root=tmp_path, partitions=partitions)
    sink.prepare()
    writer = sink.writer(context(None))
    with pytest.raises(UnstorableValueError):  # noqa: PT012 - whichever of the two notices
        writer.write([*GOOD, bad])
        writer.finish()
    assert list((log_folder("out", tmp_path) / "staging").iterdir()) == []


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_lenient_sink_stores_what_it_can_show(tmp_path: Path, partitions: int) -> None:
    sink = LogSink("out", root=tmp_path, partitions=partitions, lenient=True)
    sink.prepare()
    writer = sink.writer(context(None))
    writer.write([BAD[0], BAD[1]])
    sink.commit(0, [writer.finish()])
    assert sum(Log.open(log_folder("out", tmp_path)).ends()) == 2
