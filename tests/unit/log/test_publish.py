"""Staged segments become visible exactly once, wherever the process that publishes them dies."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import LogError
from penstock.log import Log, StagedSegment
from penstock.record import Record


class CrashError(BaseException):
    """The process is gone: no handler of ordinary errors sees this."""


def values(log: Log, partition: int) -> list[object]:
    return [record.value for chunk in log.read(partition, 0) for record in chunk]


def stage_four(log: Log) -> tuple[list[StagedSegment], list[int]]:
    staged = [
        log.stage(0, [Record(None, "a1"), Record(None, "a2")]),
        log.stage(1, [Record(None, "b1")]),
        log.stage(0, [Record(None, "a3")]),
        log.stage(1, [Record(None, "b2"), Record(None, "b3")]),
    ]
    return staged, log.ends()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = Log.create(tmp_path / "out", partitions=2)
    log.append([Record(None, "before")], partition=0)
    return log


def test_staged_is_invisible_until_published(log: Log) -> None:
    staged = log.stage(1, [Record("k", 1), Record("k", 2, 5.0)], now=3.0)
    file = log.path / "staging" / staged.file
    assert (staged.partition, staged.count, staged.bytes) == (1, 2, file.stat().st_size)
    assert (log.ends(), values(log, 1)) == ([1, 0], [])
    log.publish([staged], log.ends())
    assert list(log.read(1, 0)) == [[Record("k", 1, 3.0), Record("k", 2, 5.0)]]
    assert not file.exists()


def test_publishing_again_changes_nothing(log: Log) -> None:
    staged, since = stage_four(log)
    for _ in range(3):
        log.publish(staged, since)
        Log.open(log.path).publish(staged, since)
        log.append([Record(None, "other")], partition=1)
    assert values(log, 0) == ["before", "a1", "a2", "a3"]
    assert values(log, 1) == ["b1", "b2", "b3", "other", "other", "other"]


def crash_at(call: int, before: bool, real: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and before:
            raise CrashError
        result = real(*args, **kwargs)
        if calls == call:
            raise CrashError
        return result

    return wrapped


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("call", [1, 2, 3, 4])
@pytest.mark.parametrize("function", ["link", "unlink"])
def test_a_crash_at_any_step_then_publish_again(
    log: Log, monkeypatch: pytest.MonkeyPatch, function: str, call: int, before: bool
) -> None:
    staged, since = stage_four(log)
    with monkeypatch.context() as patch:
        patch.setattr(os, function, crash_at(call, before, getattr(os, function)))
        with pytest.raises(CrashError):
            log.publish(staged, since)
    recovered = Log.open(log.path)
    recovered.append([Record(None, "other")], partition=0)
    remembered = [StagedSegment.from_json(one.to_json()) for one in staged]
    recovered.publish(remembered, since)
    recovered.publish(remembered, since)
    assert [value for value in values(recovered, 0) if value != "other"] == ["before", "a1", "a2", "a3"]
    assert values(recovered, 0).count("other") == 1
    assert values(recovered, 1) == ["b1", "b2", "b3"]
    assert list((log.path / "staging").iterdir()) == []


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("function", ["link", "unlink"])
def test_a_crash_during_append_leaves_each_partition_whole(
    log: Log, monkeypatch: pytest.MonkeyPatch, function: str, call: int, before: bool
) -> None:
    records = [Record(key, key) for key in "abcdefgh"]
    Log.open(log.path).append(records)
    whole = [values(log, 0)[1:], values(log, 1)]
    assert all(whole)
    with monkeypatch.context() as patch:
        patch.setattr(os, function, crash_at(call, before, getattr(os, function)))
        with pytest.raises(CrashError):
            log.append(records)
    reopened = Log.open(log.path)
    assert values(reopened, 0)[1:] in (whole[0], whole[0] * 2)
    assert values(reopened, 1) in (whole[1], whole[1] * 2)
    reopened.append([Record(None, "after")], partition=0)
    assert not reopened.stat(verify=True).damaged


def test_a_link_whose_answer_was_lost_is_not_made_twice(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def link(source: Any, target: Any) -> None:
        real(source, target)
        raise FileExistsError(target)

    monkeypatch.setattr(os, "link", link)
    log.append([Record(None, "x")], partition=0)
    staged = log.stage(0, [Record(None, "y")])
    log.publish([staged], log.ends())
    assert values(log, 0) == ["before", "x", "y"]


def test_many_publishers_of_the_same_segments(tmp_path: Path) -> None:
    for attempt in range(15):
        log = Log.create(tmp_path / f"out-{attempt}", partitions=2)
        staged, since = stage_four(log)
        barrier = threading.Barrier(6)
        failures: list[BaseException] = []

        def publish(
            path: Path = log.path,
            staged: list[StagedSegment] = staged,
            since: list[int] = since,
            barrier: threading.Barrier = barrier,
            failures: list[BaseException] = failures,
        ) -> None:
            mine = Log.open(path)
            barrier.wait()
            try:
                mine.publish(staged, since)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=publish) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert failures == []
        assert (values(log, 0), values(log, 1)) == (["a1", "a2", "a3"], ["b1", "b2", "b3"])


def test_a_segment_that_is_nowhere_is_an_error(log: Log) -> None:
    staged = log.stage(0, [Record(None, 1)])
    since = log.ends()
    assert log.discard_staged(older_than_seconds=-1) == 1
    with pytest.raises(LogError, match="no longer exists"):
        log.publish([staged], since)
    assert values(log, 0) == ["before"]


def test_a_damaged_staged_file_is_not_published(log: Log) -> None:
    staged = log.stage(0, [Record(None, 1)])
    (log.path / "staging" / staged.file).write_bytes(b"torn")
    with pytest.raises(LogError, match="damaged: torn"):
        log.publish([staged], log.ends())
    assert log.ends() == [1, 0]


def test_a_staged_file_of_another_segment_is_not_published(log: Log) -> None:
    one, two = log.stage(0, [Record(None, 1)]), log.stage(0, [Record(None, 2)])
    folder = log.path / "staging"
    (folder / two.file).replace(folder / one.file)
    with pytest.raises(LogError, match="holds another segment"):
        log.publish([one], log.ends())


def test_since_must_fit_the_log(log: Log) -> None:
    staged = log.stage(0, [Record(None, 1)])
    with pytest.raises(LogError, match="2 partitions"):
        log.publish([staged], [0])
    with pytest.raises(LogError, match="ends at 1, before position 7"):
        log.publish([staged], [7, 0])


def test_nothing_cannot_be_staged(log: Log) -> None:
    with pytest.raises(LogError, match="at least one record"):
        log.stage(0, [])


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"id":"00","partition":0,"file":"../../x","count":1,"bytes":1}'],
)
def test_what_is_not_a_staged_segment(text: str) -> None:
    with pytest.raises(LogError, match="not a staged segment"):
        StagedSegment.from_json(text)


def test_clean_takes_only_what_crashed_producers_left(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = log.stage(0, [Record(None, "staged")])
    published = log.stage(0, [Record(None, "published")])
    since = log.ends()
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", crash_at(1, True, os.unlink))
        with pytest.raises(CrashError):
            log.publish([published], since)
    with monkeypatch.context() as patch:
        # A dead process cannot tidy up after itself either.
        patch.setattr(os, "link", crash_at(1, True, os.link))
        patch.setattr(Path, "unlink", lambda *args, **kwargs: None)
        with pytest.raises(CrashError):
            log.append([Record(None, "lost")])
    assert len(list((log.path / "staging").iterdir())) == 3
    assert log.clean() == 0
    assert log.clean(older_than_seconds=-1) == 2
    log.publish([published, staged], since)
    assert values(log, 0) == ["before", "published", "staged"]
