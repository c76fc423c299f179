"""Waits of tests: what they count, what ends them, and what they say then."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from support.waiting import always, eventually, promised


def test_what_does_not_come_in_time_is_missed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="not within 1 s: a thing"):
        promised(1.0, "a thing", lambda: None, tmp_path)


def test_a_disk_that_takes_no_write_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    back = time.monotonic() + 4.0
    monkeypatch.setattr(os, "fsync", lambda _: time.sleep(max(0.0, back - time.monotonic())))
    assert promised(1.5, "a thing", lambda: time.monotonic() > back, tmp_path)


def test_a_wait_returns_what_it_found_and_ends_when_it_has_become_useless() -> None:
    looks = iter([None, 0, "found"])
    assert eventually("a thing", lambda: next(looks)) == "found"

    def fail() -> None:
        raise RuntimeError("it has died")

    with pytest.raises(RuntimeError, match="it has died"):
        eventually("a thing", lambda: None, meanwhile=fail)


def test_a_wait_for_what_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.waiting.DEADLINE", 0.1)
    with pytest.raises(AssertionError, match=r"not within 0 s: a thing; the last look found \[\]"):
        eventually("a thing", list)


def test_what_does_not_stay_so_is_noticed() -> None:
    looks = iter([True, True, False])
    with pytest.raises(AssertionError, match="not all the time: it rests"):
        always("it rests", lambda: next(looks), 60.0)
    always("it rests", lambda: True, 0.05)
