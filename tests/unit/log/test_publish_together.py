"""Two publish the same segments: the second does all of its work between any two steps of the first."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.log import Log, Retention, StagedSegment, segment
from penstock.record import Record


class StopError(BaseException):
    """The first process is killed here."""


@contextmanager
def before_step(number: int, does: Callable[[], None]) -> Iterator[list[int]]:
    """Do something before one of the steps that follow at the file system; gives a list of steps taken."""
    taken: list[int] = []

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            if len(taken) <= number:  # What is done then takes steps too, which do not count.
                taken.append(len(taken))
                if len(taken) == number + 1:
                    taken.append(len(taken))
                    does()
            return real(*arguments, **options)

        return step

    with pytest.MonkeyPatch.context() as patched:
        for owner, name in ((os, "link"), (Path, "unlink"), (Path, "exists"), (segment, "read_header")):
            patched.setattr(owner, name, counted(getattr(owner, name)))
        yield taken


def staged_in(log: Log) -> tuple[list[StagedSegment], list[int]]:
    since = log.ends()
    texts = (["a1", "a2"], ["a3"])
    staged = [log.stage(0, [Record(None, text) for text in part]) for part in texts]
    return [*staged, log.stage(1, [Record(None, "b1")])], since


def make(folder: Path) -> tuple[Log, list[StagedSegment], list[int]]:
    log = Log.create(folder, partitions=2)
    for text in ("x1", "x2"):
        log.append([Record(None, text)], partition=0)
    return log, *staged_in(log)


def values(log: Log) -> Counter[str]:
    return Counter(
        str(record.value)
        for number in range(2)
        for chunk in log.read(number, log.begin(number))
        for record in chunk
    )


ONCE = Counter(["x1", "x2", "a1", "a2", "a3", "b1", "y"])


@pytest.mark.parametrize("dies", [False, True], ids=["goes-on", "dies"])
@pytest.mark.parametrize("known", [True, False], ids=["knows-the-log", "opens-the-log"])
def test_another_publishes_between_any_two_steps(tmp_path: Path, dies: bool, known: bool) -> None:
    number = 0
    while True:
        log, staged, since = make(tmp_path / str(number))

        def interrupt(log: Log = log, staged: Any = staged, since: Any = since) -> None:
            other = Log.open(log.path)
            other.append([Record(None, "y")], partition=0)
            other.publish(staged, since)
            if dies:
                raise StopError

        first = log if known else Log.open(log.path)
        with suppress(StopError), before_step(number, interrupt) as taken:
            first.publish(staged, since)
        if len(taken) <= number:
            break
        Log.open(log.path).publish(staged, since)
        assert values(Log.open(log.path)) == ONCE, f"step {number}"
        assert list((log.path / "staging").iterdir()) == []
        number += 1
    assert number >= 12, "a publish takes more steps than that"


def delete_all(log: Log) -> None:
    """Let retention delete everything but the newest segments."""
    log.set_retention(Retention(bytes=1))
    log.append([Record(None, "newest")], partition=0)
    log.append([Record(None, "newest")], partition=1)
    log.retain()
    log.set_retention(Retention())


@pytest.mark.parametrize("merged", [False, True], ids=["apart", "merged"])
@pytest.mark.parametrize("ended", [False, True], ids=["left", "ended"])
def test_what_was_published_and_deleted_does_not_come_back(tmp_path: Path, ended: bool, merged: bool) -> None:
    """One is killed before any of its steps, and what it has published is deleted before another comes."""
    number = 0
    while True:
        log, staged, since = make(tmp_path / str(number))

        def die() -> None:
            raise StopError

        with suppress(StopError), before_step(number, die) as taken:
            Log.open(log.path).publish(staged, since)
        over = len(taken) <= number
        other = Log.open(log.path)
        if ended:
            other.publish(staged, since)
        missing = ONCE - Counter(["x1", "x2", "y"]) - values(other)
        if merged:
            for partition in (0, 1, 1):
                other.append([Record(None, "last")], partition=partition)
            other.compact()
        delete_all(other)
        for third in (log, Log.open(log.path)):
            third.publish(staged, since)
        left = values(Log.open(log.path))
        assert left == Counter(["newest", "newest"]) + missing, f"step {number}"
        assert list((log.path / "staging").iterdir()) == []
        if over:
            break
        number += 1
    assert number >= 12
