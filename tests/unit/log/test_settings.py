"""What a log remembers of how it was made."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock.errors import LogError, SettingError
from penstock.log import Fsync, Log, Retention
from penstock.record import Record


def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is brought to the disk from now on: the kind of each file."""
    calls: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        calls.append(path.name if path.is_dir() else "file")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return calls


@pytest.mark.parametrize(
    ("level", "append", "stage", "publish"),
    [
        ("none", [], [], []),
        ("segment", ["file"], ["file"], []),
        ("full", ["file", "p00000"], ["file", "staging"], ["p00000"]),
    ],
)
def test_what_each_level_waits_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    level: Fsync,
    append: list[str],
    stage: list[str],
    publish: list[str],
) -> None:
    made = Log.create(tmp_path / "orders", fsync=level)
    other = Log.create(tmp_path / "other")
    calls = synced(monkeypatch)
    for one in (Log.open(made.path), Log.open(other.path, fsync=level)):
        calls.clear()
        one.append([Record("k", 1)])
        assert calls == append
        calls.clear()
        staged = one.stage(0, [Record("k", 1)])
        assert calls == stage
        calls.clear()
        one.publish([staged], one.ends())
        assert calls == publish


def test_a_merged_segment_is_on_the_disk_before_the_others_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log.create(tmp_path / "orders")
    for number in range(4):
        log.append([Record("k", number)])
    calls = synced(monkeypatch)
    log.compact()
    assert calls == ["file", "p00000"]


@pytest.mark.parametrize("level", ["", "Full", True, 1])
def test_a_level_that_there_is_not(tmp_path: Path, level: object) -> None:
    with pytest.raises(SettingError, match="choose none, segment, full"):
        Log.create(tmp_path / "orders", fsync=level)  # type: ignore[arg-type]
    assert not (tmp_path / "orders").exists()
    Log.create(tmp_path / "orders")
    with pytest.raises(SettingError, match="choose none, segment, full"):
        Log.open(tmp_path / "orders", fsync=level)  # type: ignore[arg-type]


def test_settings_are_kept(tmp_path: Path) -> None:
    made = Log.create(
        tmp_path / "orders", fsync="segment", retain_bytes=10, retain_seconds=5.5, retain_consumed=True
    )
    found = Log.open(made.path).stat()
    assert (found.id, found.fsync, found.retention) == (made.id, "segment", Retention(10, 5.5, True))
    assert Log.open(made.path, fsync="full").fsync == "full"
    made.set_retention(Retention(seconds=3))
    again = Log.open(made.path)
    assert (again.id, again.fsync, again.retention) == (made.id, "segment", Retention(seconds=3))
    assert Log.create(made.path, exist_ok=True, retain_bytes=99).retention == Retention(seconds=3)


def test_every_log_has_an_id_of_its_own(tmp_path: Path) -> None:
    ids = {Log.create(tmp_path / str(number)).id for number in range(5)}
    assert len(ids) == 5
    assert all(one is not None and len(one) == 32 for one in ids)


@pytest.mark.parametrize(
    "change",
    [
        {"id": "xyz"},
        {"id": None},
        {"fsync": "maybe"},
        {"retention": {"bytes": -1}},
        {"retention": {"pages": 1}},
        {"retention": None},
    ],
)
def test_settings_that_were_altered(tmp_path: Path, change: dict[str, object]) -> None:
    file = Log.create(tmp_path / "orders").path / "log.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(LogError, match="is not a valid log description"):
        Log.open(tmp_path / "orders")


def test_a_log_of_the_first_format_gets_an_id_with_its_first_setting(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders")
    log.append([Record("k", 1)])
    (log.path / "log.json").write_text('{"format": "penstock.log", "version": 1, "partitions": 1}')
    (log.path / "readers").rmdir()
    old = Log.open(log.path)
    assert (old.id, old.fsync, old.retention, old.stat().id) == (None, "none", Retention(), None)
    old.note_reader("a.in", {0: 1})
    old.set_retention(Retention(bytes=1))
    assert old.id is not None
    assert old.stat().id == old.id == Log.open(log.path).id
    assert [reader.name for reader in old.readers()] == ["a.in"]
