"""A job's home is restored whole or not at all, whatever is damaged and whoever dies."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snapshot_cases import JOB, KilledError, content_of, home_at, keep, kept, killed_after, manifest_of

from penstock.backups.snapshots.snapshot_errors import (
    NoCompleteSnapshotError,
    SnapshotFullError,
    TransferStoppedError,
)
from penstock.backups.snapshots.snapshot_restore import (
    Restored,
    is_immutable,
    needs_restore,
    restore,
    restored,
)
from penstock.backups.snapshots.snapshot_store import SnapshotStore

HOMES = [home_at(batch) for batch in range(3)]
OLD = {"left": b"by an earlier time"}


def place_of(folder: Path, *, old: Mapping[str, bytes] = OLD) -> Path:
    """A node's place for the job, with a home of an earlier time."""
    home = folder / "kept" / JOB / "home"
    home.parent.mkdir(parents=True)
    for path, data in old.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_bytes(data)
    return home


def test_the_newest_snapshot_becomes_the_home(tmp_path: Path) -> None:
    store, home = kept(tmp_path / "snapshots", HOMES), place_of(tmp_path)
    assert needs_restore(home, 4)
    made = restore(home, JOB, local=store, revision=4)
    assert made == Restored(revision=4, number=3, batch=2, bytes_moved=0)
    assert content_of(home) == HOMES[2]
    assert (home / "logs/in/readers").is_dir()
    assert content_of(home.with_name("home.before-4")) == OLD
    assert not home.with_name("restoring").exists()
    assert restored(home) == made
    assert not needs_restore(home, 4)
    assert not needs_restore(home, 3)
    assert needs_restore(home, 5)


def test_where_nothing_was_nothing_is_set_aside(tmp_path: Path) -> None:
    store, home = kept(tmp_path / "snapshots", HOMES), place_of(tmp_path, old={})
    restore(home, JOB, local=store, revision=4)
    assert sorted(path.name for path in home.parent.iterdir()) == ["home", "restored.json"]
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in home.parent.rglob("*")}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_one_home_of_an_earlier_time_is_left(tmp_path: Path) -> None:
    store, home = kept(tmp_path / "snapshots", HOMES[:1]), place_of(tmp_path)
    for revision in (9, 10):
        restore(home, JOB, local=store, revision=revision)
    names = sorted(path.name for path in home.parent.iterdir())
    assert names == ["home", "home.before-10", "restored.json"]
    assert content_of(home.with_name("home.before-10")) == HOMES[0]


def test_only_files_that_nobody_writes_to_are_one_with_their_objects(tmp_path: Path) -> None:
    store, home = kept(tmp_path / "snapshots", HOMES), place_of(tmp_path)
    restore(home, JOB, local=store, revision=1)
    shared = {path for path in HOMES[2] if (home / path).stat().st_nlink > 1}
    staged_and_published = "logs/in/staging/stage-0a.seg"
    assert shared == {path for path in HOMES[2] if is_immutable(path)} | {staged_and_published}
    assert (home / staged_and_published).samefile(home / "logs/in/p00000/00000000000000000020.seg")
    with (home / "logs/in/p00000/.lock").open("ab") as lock:
        lock.write(b"generation")
    again = home.parent / "again" / "home"
    restore(again, JOB, local=store, revision=1)
    assert content_of(again) == HOMES[2]


def test_without_hard_links_everything_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, home = kept(tmp_path / "snapshots", HOMES), place_of(tmp_path)
    real = os.link

    def refuse(source: Path, target: Path) -> None:
        if "snapshots" in str(source):
            raise OSError(18, "Invalid cross-device link")
        real(source, target)

    monkeypatch.setattr(os, "link", refuse)
    restore(home, JOB, local=store, revision=1)
    assert content_of(home) == HOMES[2]


def test_nobody_else_who_reads_the_store_changes_it(tmp_path: Path) -> None:
    kept(tmp_path / "snapshots", HOMES)
    before = content_of(tmp_path / "snapshots")
    restore(place_of(tmp_path), JOB, local=SnapshotStore(tmp_path / "snapshots"), revision=1)
    assert content_of(tmp_path / "snapshots") == before


def test_without_a_snapshot_nothing_is_changed(tmp_path: Path) -> None:
    home = place_of(tmp_path)
    for local in (SnapshotStore(tmp_path / "snapshots"), None):
        with pytest.raises(NoCompleteSnapshotError, match=r"no complete snapshot .*'count'.*\n.*--fresh"):
            restore(home, JOB, local=local, revision=1)
    assert content_of(home) == OLD
    assert needs_restore(home, 1)


def test_a_restore_can_be_stopped(tmp_path: Path) -> None:
    store, home = kept(tmp_path / "snapshots", HOMES), place_of(tmp_path)
    stop = Event()
    stop.set()
    with pytest.raises(TransferStoppedError):
        restore(home, JOB, local=store, revision=1, stop=stop)
    assert content_of(home) == OLD


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, home = kept(tmp_path / "snapshots", HOMES), place_of(tmp_path)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(SnapshotFullError):
            restore(home, JOB, local=store, revision=1)
    assert content_of(home) == OLD
    restore(home, JOB, local=store, revision=1)
    assert content_of(home) == HOMES[2]


@pytest.mark.parametrize("marker", [b"", b"{}", b"[]", b"torn {", b'{"revision": "x", "skipped": []}'])
def test_a_marker_that_says_nothing_is_none(tmp_path: Path, marker: bytes) -> None:
    home = place_of(tmp_path)
    home.with_name("restored.json").write_bytes(marker)
    assert needs_restore(home, 0)


def test_a_worker_that_dies_at_any_moment_leaves_the_old_home_or_the_new(tmp_path: Path) -> None:
    """Every call that changes the disk is the last one once; the next worker goes on, or the one after it."""
    store = kept(tmp_path / "snapshots", HOMES)
    calls, done = 0, False
    while not done:
        home = place_of(tmp_path / str(calls))
        for worker in (1, 2):
            try:
                with killed_after(calls):
                    if needs_restore(home, 4):
                        restore(home, JOB, local=store, revision=4)
                done = done or worker == 1
            except KilledError:
                pass
            if home.exists():
                assert content_of(home) in (OLD, HOMES[2]), calls
            else:
                assert content_of(home.with_name("home.before-4")) == OLD, calls
            if not needs_restore(home, 4):
                assert content_of(home) == HOMES[2], calls
        if needs_restore(home, 4):
            restore(home, JOB, local=store, revision=4)
        assert content_of(home) == HOMES[2], calls
        assert content_of(home.with_name("home.before-4")) == OLD, calls
        assert content_of(home.with_name("restored.json").parent).keys() >= {"restored.json"}
        calls += 1
    assert calls > 50


def test_what_a_dead_worker_had_ready_is_not_used_for_a_later_snapshot(tmp_path: Path) -> None:
    calls, done = 0, False
    while not done:
        folder = tmp_path / str(calls)
        store, home = kept(folder / "snapshots", HOMES[:2]), place_of(folder)
        try:
            with killed_after(calls):
                restore(home, JOB, local=store, revision=4)
            done = True
        except KilledError:
            calls += 2
        keep(store, HOMES[2], manifest_of(HOMES[2], 2))
        restore(home, JOB, local=store, revision=5)
        assert content_of(home) == HOMES[2]
        aside = [path for path in home.parent.iterdir() if "before" in path.name]
        assert [content_of(path) for path in aside] in ([OLD], [HOMES[1]]), calls


DAMAGES = st.dictionaries(
    st.integers(min_value=0, max_value=30),
    st.sampled_from(["missing", "torn", "longer", "altered", "empty"]),
    max_size=4,
)


@settings(max_examples=settings().max_examples)
@given(DAMAGES)
def test_whatever_is_damaged_the_last_whole_snapshot_is_used_or_none(damages: dict[int, str]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        store, home = kept(folder / "snapshots", HOMES), place_of(folder)
        files = sorted(path for path in (folder / "snapshots").rglob("*") if path.is_file())
        assert len(files) < 30
        chosen = {files[which]: how for which, how in damages.items() if which < len(files)}
        hurt = {path.name for path, how in chosen.items() if damage(path, how)}
        gone = {int(path.stem) for path, how in chosen.items() if how == "missing" and path.suffix}
        whole = [
            batch
            for batch in (2, 1, 0)
            if f"{batch + 1:012d}.json" not in hurt
            and not hurt & {piece.sha256 for piece in manifest_of(HOMES[batch], batch).pieces}
        ]
        if whole:
            made = restore(home, JOB, local=store, revision=1)
            assert content_of(home) == HOMES[whole[0]]
            skipped = [number for number in (3, 2, 1) if number > whole[0] + 1 and number not in gone]
            assert (made.batch, len(made.skipped)) == (whole[0], len(skipped))
        else:
            with pytest.raises(NoCompleteSnapshotError) as raised:
                restore(home, JOB, local=store, revision=1)
            assert len(raised.value.reasons) == 3 - len(gone)
            assert content_of(home) == OLD
            assert sorted(path.name for path in home.parent.iterdir()) == ["home", "restoring"]
            assert content_of(home.with_name("restoring")) == {}


def damage(path: Path, how: str) -> bool:
    """Hurt a file; return whether that changed anything."""
    before = path.read_bytes()
    if how == "missing":
        path.unlink()
        return True
    after = {
        "torn": before[: len(before) // 2],
        "longer": before + b"x",
        "altered": before[:-1] + bytes([before[-1] ^ 1]) if before else b"",
        "empty": b"",
    }[how]
    path.write_bytes(after)
    return after != before


def test_the_marker_says_what_was_skipped(tmp_path: Path) -> None:
    store, home = kept(tmp_path / "snapshots", HOMES), place_of(tmp_path)
    store.path(JOB, manifest_of(HOMES[2], 2).pieces[0].sha256).unlink()
    restore(home, JOB, local=store, revision=1)
    [reason] = json.loads(home.with_name("restored.json").read_bytes())["skipped"]
    assert reason.startswith("snapshot 3: the object ")
    assert reason.endswith(" is missing")
