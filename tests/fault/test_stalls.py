"""What tests of promises count: the time that passes, but for that in which the machine stood still."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from stalls import within


def test_what_does_not_come_in_time_is_missed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="not within 1 s: a thing"):
        within(1.0, lambda: None, "a thing", tmp_path)


def test_a_disk_that_takes_no_write_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    back = time.monotonic() + 4.0
    monkeypatch.setattr(os, "fsync", lambda _: time.sleep(max(0.0, back - time.monotonic())))
    assert within(1.5, lambda: time.monotonic() > back, "a thing", tmp_path)
