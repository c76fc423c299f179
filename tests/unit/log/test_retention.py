"""What a log keeps: decided by size, age and readers, deleted in whole segments from the front."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import LogError, SettingError
from penstock.log import Log, Retention, maintenance
from penstock.log.retention import Cut, SegmentFacts, decide
from penstock.record import Record
from penstock.setting_values import read_size


def facts(*sizes: int, first: float = 0.0) -> list[SegmentFacts]:
    """Segments of ten records, one a second."""
    return [SegmentFacts(10 * i, 10 * i + 10, size, first + i) for i, size in enumerate(sizes)]


def values(log: Log, partition: int = 0) -> list[object]:
    return [record.value for chunk in log.read(partition, log.begin(partition)) for record in chunk]


def fill(log: Log, segments: int, partition: int = 0) -> None:
    start = log.end(partition)
    for number in range(start, start + segments):
        log.append([Record(None, number)], partition)


def test_no_rule_deletes_nothing() -> None:
    assert decide({0: facts(1, 1, 1)}, Retention(), {0: 30}, now=1e9) == []


def test_by_age_the_newest_stays() -> None:
    (cut,) = decide({0: facts(5, 6, 7)}, Retention(seconds=10), {}, now=1e9)
    assert cut == Cut(0, 20, 2, 11, "older than 10 seconds")
    assert decide({0: facts(5, 6, 7)}, Retention(seconds=10), {}, now=10.0) == []


def test_by_size_the_oldest_of_all_partitions_go_first() -> None:
    old, young = facts(10, 10, 10, first=0.0), facts(10, 10, 10, first=1.5)
    cuts = decide({0: young, 1: old}, Retention(bytes=35), {}, now=0.0)
    assert [(cut.partition, cut.position) for cut in cuts] == [(0, 10), (1, 20)]
    assert {cut.reason for cut in cuts} == {"the log is larger than 35 bytes"}
    assert [cut.segments for cut in decide({0: young, 1: old}, Retention(bytes=1), {}, now=0.0)] == [2, 2]


def test_by_readers_only_what_all_have_consumed() -> None:
    cuts = decide({0: facts(1, 1, 1, 1), 1: facts(1, 1)}, Retention(consumed=True), {0: 25, 1: 9}, now=0.0)
    assert cuts == [Cut(0, 20, 2, 2, "consumed by every reader")]
    assert decide({0: facts(1, 1, 1)}, Retention(consumed=True), {}, now=0.0) == []


def test_rules_add_up_and_say_so() -> None:
    rules = Retention(bytes=25, seconds=8.5, consumed=True)
    (cut,) = decide({0: facts(10, 10, 10, 10, 10)}, rules, {0: 10}, now=10.0)
    assert cut.position == 30
    assert cut.reason == ("consumed by every reader, older than 8.5 seconds, the log is larger than 25 bytes")


@given(
    st.lists(st.lists(st.integers(1, 50), max_size=6), max_size=3),
    st.one_of(st.none(), st.integers(1, 200)),
    st.one_of(st.none(), st.floats(0.1, 10)),
    st.booleans(),
    st.dictionaries(st.integers(0, 2), st.integers(0, 60)),
)
def test_whatever_the_rules_are(
    sizes: Sequence[Sequence[int]],
    limit: int | None,
    seconds: float | None,
    consumed: bool,
    positions: dict[int, int],
) -> None:
    partitions = {number: facts(*some) for number, some in enumerate(sizes)}
    rules = Retention(limit, seconds, consumed)
    cuts = {cut.partition: cut for cut in decide(partitions, rules, positions, now=5.0)}
    for number, some in partitions.items():
        cut = cuts.get(number)
        dropped = some[: cut.segments] if cut else []
        assert len(dropped) < max(1, len(some))
        if limit is None:
            for one in dropped:
                old = seconds is not None and one.time < 5.0 - seconds
                read = consumed and one.end <= positions.get(number, -1)
                assert old or read
    left = {
        number: some[cuts[number].segments if number in cuts else 0 :] for number, some in partitions.items()
    }
    if limit is not None and sum(one.bytes for some in left.values() for one in some) > limit:
        assert all(len(some) <= 1 for some in left.values())


@pytest.mark.parametrize(
    "rule", [{"bytes": 0}, {"bytes": 1.5}, {"seconds": 0}, {"seconds": "7d"}, {"consumed": "yes"}]
)
def test_rules_that_make_no_sense(rule: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="retain_"):
        Retention(**rule)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "1XB", "GB", "-1", "1 2"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(SettingError, match="not a size"):
        read_size(text)


def test_deleting_is_seen_by_who_has_the_log_open(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders", retain_seconds=60)
    fill(log, 5)
    reader = Log.open(log.path)
    assert (reader.begin(0), reader.end(0)) == (0, 5)
    for position in range(3):
        os.utime(log.path / "p00000" / f"{position:020d}.seg", (0, 0))
    (cut,) = log.retain()
    assert (cut.position, cut.segments, cut.reason) == (3, 3, "older than 60 seconds")
    assert (reader.begin(0), reader.end(0), values(reader)) == (3, 5, [3, 4])
    assert log.retain() == []
    fill(reader, 1)
    assert values(log) == [3, 4, 5]
    with pytest.raises(LogError, match="positions before 3 are gone, and 1 was asked for: retention"):
        reader.read(0, 1)
    with pytest.raises(LogError, match=r"positions before 3 are gone.*--fresh"):
        log.tail(0, 0)


def test_the_newest_segment_keeps_the_positions_going(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders", retain_bytes=1)
    fill(log, 4)
    log.retain()
    assert (log.begin(0), log.end(0)) == (3, 4)
    again = Log.open(log.path, upkeep=False)
    fill(again, 1)
    assert (again.end(0), values(again)) == (5, [3, 4])


def test_a_read_that_is_overtaken_says_so(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders", retain_bytes=1)
    fill(log, 4)
    reading = Log.open(log.path).read(0, 0)
    assert [record.value for record in next(reading)] == [0]
    log.retain()
    with pytest.raises(LogError, match="positions before 3 are gone, and 1 was asked for"):
        next(reading)


def test_a_producer_that_slept_does_not_fill_a_freed_name(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders", retain_bytes=1)
    sleeper = Log.open(log.path, upkeep=False)
    assert sleeper.end(0) == 0
    fill(log, 6)
    log.retain()
    sleeper.append([Record(None, "late")])
    assert (log.begin(0), values(log)) == (5, [5, "late"])
    assert not log.stat(verify=True).damaged


def test_readers_hold_deletion_up_until_they_are_forgotten(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders", retain_consumed=True)
    fill(log, 6)
    assert log.retain() == []
    log.note_reader("fast.in", {0: 6})
    log.note_reader("slow.in", {0: 2})
    log.retain()
    assert log.begin(0) == 2
    log.forget_reader("slow.in")
    log.retain()
    assert log.begin(0) == 5
    with pytest.raises(LogError, match=r"no reader 'slow.in': known readers: 'fast.in'"):
        log.forget_reader("slow.in")


def test_a_reader_whose_file_is_torn_has_consumed_nothing(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders", retain_consumed=True)
    fill(log, 6)
    log.note_reader("one.in", {0: 6})
    (log.path / "readers" / "one.in.json").write_bytes(b"")
    assert log.retain() == []
    assert [(reader.name, reader.lag) for reader in log.stat().readers] == [("one.in", 6)]
    log.forget_reader("one.in")
    assert log.readers() == []


def test_settings_can_be_changed_while_a_producer_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_MIN_INTERVAL", 0.0)
    monkeypatch.setattr(maintenance, "_MAX_TIME_SHARE", 1e9)
    monkeypatch.setattr(maintenance, "_SEGMENTS_PER_STEP", 1)
    producer = Log.create(tmp_path / "orders")
    fill(producer, 10)
    assert producer.begin(0) == 0
    Log.open(producer.path).set_retention(Retention(bytes=1))
    fill(producer, 2)
    assert (producer.begin(0), producer.end(0)) == (11, 12)
    assert producer.retention == Retention(bytes=1)


def test_without_upkeep_a_producer_deletes_nothing(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders", retain_bytes=1, upkeep=False)
    fill(log, 4)
    assert log.begin(0) == 0


def test_a_crash_in_the_middle_of_deleting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log.create(tmp_path / "orders", retain_bytes=1)
    fill(log, 6)

    class CrashError(BaseException):
        pass

    real = Path.unlink

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if self.name.startswith(f"{3:020d}"):
            raise CrashError
        real(self, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        with pytest.raises(CrashError):
            log.retain()
    after = Log.open(log.path)
    assert (after.begin(0), values(after)) == (3, [3, 4, 5])
    assert not after.stat(verify=True).damaged
    after.retain()
    assert values(log) == [5]


def test_publishing_again_what_has_been_deleted_since(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "out", retain_bytes=1)
    staged = [log.stage(0, [Record(None, number)]) for number in range(4)]
    since = log.ends()
    log.publish(staged, since)
    log.retain()
    Log.open(log.path).publish(staged, since)
    assert values(log) == [3]


def test_a_staged_name_that_a_crash_left_does_not_outlive_its_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log.create(tmp_path / "out", retain_bytes=1, upkeep=False)
    staged = [log.stage(0, [Record(None, number)]) for number in range(3)]
    since = log.ends()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *args, **kwargs: None)
        log.publish(staged, since)
    assert len(list((log.path / "staging").iterdir())) == 3
    log.retain()
    Log.open(log.path).publish(staged, since)
    assert (log.end(0), values(log)) == (3, [2])
    assert list((log.path / "staging").iterdir()) == []


def test_age_counts_from_the_writing(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders", retain_seconds=100)
    log.append([Record(None, "old event", 1.0)])
    log.append([Record(None, "another", 2.0)])
    assert log.retain(now=time.time() + 50) == []
    assert len(log.retain(now=time.time() + 200)) == 1
