"""Small segments become large ones, and nobody who reads, appends or publishes can tell."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import LogCorruptionError
from penstock.log import Log, maintenance
from penstock.log.maintenance import FULL_SEGMENT, Piece, plan_merges, superseded_starts
from penstock.record import Record

MIXED: list[object] = [
    1,
    2.5,
    True,
    None,
    "text",
    b"raw",
    {"a": (1, 2)},
    1 << 80,
    "\ud800",
    [None],
    float("inf"),
]


class CrashError(BaseException):
    """The process is gone."""


def pieces(*sizes: int) -> list[Piece]:
    return [Piece(10 * index, 10, size, float(index)) for index, size in enumerate(sizes)]


def starts(runs: list[list[Piece]]) -> list[list[int]]:
    return [[piece.start // 10 for piece in run] for run in runs]


def everything(log: Log, partition: int = 0) -> list[Record]:
    return [record for chunk in log.read(partition, log.begin(partition)) for record in chunk]


def segments(log: Log) -> list[int]:
    return sorted(int(path.stem) for path in (log.path / "p00000").glob("*.seg"))


def fill(log: Log, count: int, of: Callable[[int], object] = lambda number: number) -> None:
    first = log.end(0)
    for number in range(first, first + count):
        log.append([Record("k", of(number), float(number))], 0)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log.create(tmp_path / "orders", upkeep=False)


def test_only_neighbours_are_merged() -> None:
    large = FULL_SEGMENT + 1
    assert starts(plan_merges(pieces(1, 1, large, 1, large, 1, 1, 1), 2)) == [[0, 1], [5, 6, 7]]
    hole = [*pieces(1, 1), Piece(50, 10, 1, 0.0), Piece(60, 10, 1, 0.0)]
    assert starts(plan_merges(hole, 2)) == [[0, 1], [5, 6]]


def test_the_smallest_come_first_and_no_segment_grows_too_large() -> None:
    medium = 1 << 17
    assert starts(plan_merges(pieces(*[medium] * 3, *[1] * 3), 3)) == [[3, 4, 5]]
    half = FULL_SEGMENT // 2
    assert starts(plan_merges(pieces(half, half, half, half), 2)) == [[0, 1], [2, 3]]
    assert plan_merges(pieces(half + 1, half + 1, half + 1), 2) == []


def test_covered_segments() -> None:
    left = [Piece(0, 30, 1, 0.0), Piece(10, 10, 1, 0.0), Piece(20, 10, 1, 0.0), Piece(30, 5, 1, 0.0)]
    assert superseded_starts(left) == [10, 20]
    assert superseded_starts(pieces(1, 1, 1)) == []


@given(st.lists(st.integers(1, 2 * FULL_SEGMENT), max_size=40), st.integers(2, 8))
def test_a_plan_is_made_of_whole_neighbouring_segments(sizes: list[int], least: int) -> None:
    known = pieces(*sizes)
    runs = plan_merges(known, least)
    flat = [piece for run in runs for piece in run]
    assert flat == [piece for piece in known if piece in flat]
    for run in runs:
        assert len(run) > 1
        assert sum(piece.bytes for piece in run) <= FULL_SEGMENT
        assert all(one.end == two.start for one, two in pairwise(run))


@pytest.mark.parametrize(
    "of",
    [lambda n: n, lambda n: f"word {n}", lambda n: {"n": n}, lambda n: None, lambda n: MIXED[n % len(MIXED)]],
    ids=["int", "str", "json", "none", "mixed"],
)
def test_records_and_positions_stay(log: Log, of: Callable[[int], object]) -> None:
    fill(log, 40, of)
    before = everything(log)
    reader = Log.open(log.path)
    assert reader.end(0) == 40
    (done,) = log.compact()
    assert (done.before, done.after) == (40, 2)
    assert segments(log) == [0, 39]
    for one in (log, reader, Log.open(log.path)):
        found = everything(one)
        assert list(map(repr, found)) == list(map(repr, before))
        for start in range(41):
            assert [r.ts for chunk in one.read(0, start, start + 3) for r in chunk] == [
                float(n) for n in range(start, min(40, start + 3))
            ]
    assert not log.stat(verify=True).damaged
    assert log.stat().partitions[0].records == 40


def test_merging_again(log: Log) -> None:
    for _ in range(5):
        fill(log, 30)
        log.compact()
    assert [record.value for record in everything(log)] == list(range(150))
    assert len(segments(log)) == 2


def test_a_reader_in_the_middle_goes_on(log: Log) -> None:
    fill(log, 20)
    reading = Log.open(log.path).read(0, 0)
    got = [record.value for _ in range(7) for record in next(reading)]
    log.compact()
    got += [record.value for chunk in reading for record in chunk]
    assert got == list(range(20))


def test_a_producer_that_slept_does_not_fill_a_freed_name(log: Log) -> None:
    fill(log, 5)
    sleeper = Log.open(log.path, upkeep=False)
    assert sleeper.end(0) == 5
    fill(log, 5)
    log.compact()
    assert 5 not in segments(log)
    sleeper.append([Record("k", "late")], 0)
    assert [record.value for record in everything(log)] == [*range(10), "late"]


def test_an_end_that_was_merged_is_found_again(log: Log) -> None:
    fill(log, 5)
    reader = Log.open(log.path)
    assert reader.end(0) == 5
    fill(log, 5)
    log.compact()
    assert reader.end(0) == 10
    assert reader.begin(0) == 0


def test_publishing_again_finds_what_was_merged(log: Log) -> None:
    staged = [log.stage(0, [Record(None, (number, part)) for part in range(3)]) for number in range(6)]
    since = log.ends()
    log.publish(staged[:4], since)
    fill(log, 10)
    log.compact()
    fill(log, 10)
    log.compact()
    Log.open(log.path).publish(staged, since)
    Log.open(log.path).publish(staged, since)
    found = [record.value for record in everything(log) if type(record.value) is tuple]
    assert found == [(number, part) for number in range(6) for part in range(3)]
    assert list((log.path / "staging").iterdir()) == []


def crashing(patch: pytest.MonkeyPatch, function: str, call: int, before: bool) -> None:
    calls = 0
    real = getattr(os, function)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and before:
            raise CrashError
        result = real(*args, **kwargs)
        if calls == call:
            raise CrashError
        return result

    patch.setattr(os, function, wrapped)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("ftruncate", 1),
        ("utime", 1),
        ("rename", 1),
        ("fsync", 1),
        ("fsync", 2),
        *[("unlink", call) for call in range(1, 9)],
    ],
)
def test_a_crash_at_any_step(
    log: Log, monkeypatch: pytest.MonkeyPatch, function: str, call: int, before: bool
) -> None:
    fill(log, 10)
    staged = log.stage(0, [Record("k", 10, 10.0)])
    since = log.ends()
    log.publish([staged], since)
    fill(log, 5)
    open_since_before = Log.open(log.path, upkeep=False)
    open_since_before.end(0)
    with monkeypatch.context() as patch:
        crashing(patch, function, call, before)
        with pytest.raises(CrashError):
            log.compact()
    for one in (Log.open(log.path, upkeep=False), open_since_before):
        assert [record.value for record in everything(one)] == list(range(16))
        found = one.stat(verify=True)
        assert not found.damaged
        assert (found.partitions[0].records, found.partitions[0].end) == (16, 16)
    open_since_before.publish([staged], since)
    fill(open_since_before, 1)
    Log.open(log.path).compact()
    assert [record.value for record in everything(log)] == list(range(17))
    assert len(segments(log)) == 2
    log.clean(older_than_seconds=-1)
    assert list((log.path / "staging").iterdir()) == []


def test_damage_is_left_as_it_is(log: Log) -> None:
    fill(log, 9)
    file = log.path / "p00000" / f"{4:020d}.seg"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    log.compact()
    assert file.read_bytes() == content
    with pytest.raises(LogCorruptionError, match="position 4"):
        everything(Log.open(log.path))
    assert [record.value for chunk in log.read(0, 5) for record in chunk] == [5, 6, 7, 8]


def test_a_damaged_merged_segment_is_found(log: Log) -> None:
    fill(log, 9)
    log.compact()
    file = log.path / "p00000" / f"{0:020d}.seg"
    sound = file.read_bytes()
    for byte in range(0, len(sound), 7):
        altered = bytearray(sound)
        altered[byte] ^= 1
        file.write_bytes(altered)
        with pytest.raises(LogCorruptionError):
            everything(Log.open(log.path))


def test_it_is_as_old_as_the_youngest_in_it(log: Log) -> None:
    fill(log, 5)
    for position in range(5):
        os.utime(log.path / "p00000" / f"{position:020d}.seg", (position, 100 + position))
    log.compact()
    assert (log.path / "p00000" / f"{0:020d}.seg").stat().st_mtime == 103


def test_who_appends_keeps_the_number_of_files_flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_MIN_INTERVAL", 0.0)
    monkeypatch.setattr(maintenance, "_MAX_TIME_SHARE", 1e9)
    monkeypatch.setattr(maintenance, "_WINDOW", 100)
    log = Log.create(tmp_path / "orders")
    most = 0
    for _ in range(40):
        fill(log, 50)
        most = max(most, len(segments(log)))
    assert most < 150
    assert [record.value for record in everything(log)] == list(range(2000))


def test_old_logs_are_merged_only_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer of the version that made them may be at work, and knows no lock."""
    monkeypatch.setattr(maintenance, "_MIN_INTERVAL", 0.0)
    monkeypatch.setattr(maintenance, "_MAX_TIME_SHARE", 1e9)
    log = Log.create(tmp_path / "orders")
    (log.path / "log.json").write_text('{"format": "penstock.log", "version": 1, "partitions": 1}')
    old = Log.open(log.path)
    assert old.id is None
    fill(old, 100)
    assert len(segments(old)) == 100
    old.compact()
    assert len(segments(old)) == 2
    assert old.id is not None
    assert Log.open(log.path).id == old.id
    assert [record.value for record in everything(old)] == list(range(100))


def test_readers_producers_and_compactors_at_once(tmp_path: Path) -> None:
    path = Log.create(tmp_path / "orders", upkeep=False).path
    stopped = threading.Event()
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)
                stopped.set()

        return run

    def produce(name: str) -> None:
        mine = Log.open(path, upkeep=False)
        for number in range(300):
            mine.append([Record(name, number)], 0)

    def compact() -> None:
        mine = Log.open(path)
        while not stopped.is_set():
            mine.compact()

    got: list[Record] = []

    def follow() -> None:
        for chunk in Log.open(path).tail(0, 0, stop=lambda: len(got) >= 900 or stopped.is_set()):
            got.extend(chunk)

    def scan() -> None:
        while not stopped.is_set():
            positions: dict[Any, int] = {}
            for record in everything(Log.open(path)):
                assert record.value == positions.get(record.key, -1) + 1
                positions[record.key] = record.value

    producers = [threading.Thread(target=guarded(lambda name=name: produce(name))) for name in "abc"]  # type: ignore[misc]
    others = [threading.Thread(target=guarded(work)) for work in (compact, compact, scan)]
    follower = threading.Thread(target=guarded(follow))
    for thread in (*producers, *others, follower):
        thread.start()
    for thread in (*producers, follower):
        thread.join(120)
    stopped.set()
    for thread in others:
        thread.join(120)
    assert failures == []
    for name in "abc":
        assert [record.value for record in got if record.key == name] == list(range(300))
    final = Log.open(path)
    assert everything(final) == got
    assert not final.stat(verify=True).damaged


def test_pickled_logs_keep_their_upkeep(tmp_path: Path) -> None:
    import pickle

    assert pickle.loads(pickle.dumps(Log.create(tmp_path / "a", upkeep=False))).upkeep is False
