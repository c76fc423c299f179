"""A tail gives everything in order, what is there and what is yet to come."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from penstock.errors import LogCorruptionError
from penstock.log import Log, folder_watch
from penstock.record import Record
from support.waiting import DEADLINE


@pytest.fixture(params=["inotify", "probing"])
def log(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    if request.param == "probing":
        monkeypatch.setattr(folder_watch, "_inotify", lambda folders: None)
    else:
        pytest.importorskip("inotify_simple")
    return Log.create(tmp_path / "orders", partitions=2)


def past(seconds: float) -> float:
    return time.monotonic() + seconds


def test_what_is_there_and_what_comes(log: Log) -> None:
    log.append([Record(None, 0), Record(None, 1)], partition=1)
    got: list[int] = []
    deadline = past(DEADLINE)

    def follow() -> None:
        done = lambda: len(got) >= 199 or time.monotonic() > deadline  # noqa: E731
        for chunk in Log.open(log.path).tail(1, 1, stop=done):
            got.extend(record.value for record in chunk)

    follower = threading.Thread(target=follow)
    follower.start()
    for number in range(2, 200):
        log.append([Record(None, number)], partition=1)
        if number % 50 == 0:
            time.sleep(0.06)  # longer than the follower's own look
    follower.join(DEADLINE)
    assert got == list(range(1, 200))


def test_a_waiting_tail_wakes_for_each_record(log: Log) -> None:
    chunks = log.tail(0, 0, idle_timeout=DEADLINE)
    writer = Log.open(log.path)
    for number in range(5):
        timer = threading.Timer(0.02, writer.append, ([Record("k", number)], 0))
        timer.start()
        assert [record.value for record in next(chunks)] == [number]
        timer.join()


def test_stop_ends_it_even_when_nothing_comes(log: Log) -> None:
    stopped = threading.Event()
    timer = threading.Timer(0.05, stopped.set)
    timer.start()
    assert list(log.tail(0, 0, stop=stopped.is_set, idle_timeout=DEADLINE)) == []
    assert stopped.is_set()
    timer.join()


def test_stop_is_asked_between_lists(log: Log) -> None:
    for number in range(3):
        log.append([Record(None, number)], partition=0)
    got: list[int] = []
    for chunk in log.tail(0, 0, stop=lambda: len(got) >= 2):
        got.extend(record.value for record in chunk)
    assert got == [0, 1]


def test_idle_timeout_ends_it(log: Log) -> None:
    log.append([Record(None, 0)], partition=0)
    began = time.monotonic()
    assert len(list(log.tail(0, 0, idle_timeout=0.1))) == 1
    assert time.monotonic() - began >= 0.1


def test_a_tail_refuses_a_damaged_segment(log: Log) -> None:
    log.append([Record(None, 0)], partition=0)
    chunks = log.tail(0, 0, idle_timeout=DEADLINE)
    assert [record.value for record in next(chunks)] == [0]
    (log.path / "p00000" / f"{1:020d}.seg").write_bytes(b"torn")
    with pytest.raises(LogCorruptionError, match="position 1"):
        next(chunks)


def test_a_watch_sees_every_partition_it_was_given(log: Log) -> None:
    with log.watch() as every:
        log.append([Record(None, 1)], partition=1)
        every.wait(DEADLINE)
    assert log.ends() == [0, 1]
