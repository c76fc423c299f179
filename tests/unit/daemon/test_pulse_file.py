"""The sign of life of a worker whose start takes time."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.daemon.worker_folder import Pulse
from support.waiting import eventually


def _shown(folder: Path) -> float:
    try:
        return float(json.loads((folder / "pulse").read_text())["monotonic"])
    except OSError:
        return 0.0


def test_it_is_shown_for_as_long_as_something_takes(tmp_path: Path) -> None:
    pulse = Pulse(tmp_path, every=0.001)
    with pulse.shown():
        first = eventually("a sign of life", lambda: _shown(tmp_path))
        eventually("a later one", lambda: _shown(tmp_path) > first)
        with pulse.shown():
            pass
        second = _shown(tmp_path)
        eventually("still shown", lambda: _shown(tmp_path) > second)
    last = _shown(tmp_path)
    assert _shown(tmp_path) == last, "its thread has ended"
    pulse.stop()
    with pulse.shown():
        eventually("shown again", lambda: _shown(tmp_path) > last)


def test_a_disk_that_takes_nothing_does_not_end_it(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    with Pulse(folder, every=0.001).shown():
        folder.mkdir()
        eventually("a sign of life", lambda: _shown(folder))
