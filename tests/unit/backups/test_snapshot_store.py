"""What a store of snapshots keeps, refuses and forgets."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from snapshot_cases import (
    JOB,
    KilledError,
    content_of,
    home_at,
    keep,
    kept,
    killed_after,
    manifest_of,
    sha,
    upload,
)

from penstock.backups.snapshots.snapshot_errors import (
    SnapshotDamagedError,
    SnapshotFullError,
    SnapshotIncompleteError,
    SnapshotMissingError,
    SnapshotNameError,
    SnapshotOffsetError,
    SnapshotSizeError,
    SnapshotStaleError,
)
from penstock.backups.snapshots.snapshot_manifest import Manifest, SnapshotFile
from penstock.backups.snapshots.snapshot_store import UNREFERENCED_SECONDS, SnapshotStore
from penstock.backups.snapshots.transfer_format import SMALL, frame

DATA = b"0123456789" * 30
NAME = sha(DATA)


class Clock:
    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


def append(
    store: SnapshotStore, data: bytes, offset: int = 0, *, size: int = len(DATA), name: str = NAME
) -> bool:
    return upload(store, data, offset, size, name=name)


def single(data: bytes = DATA, path: str = "a") -> Manifest:
    return Manifest(JOB, 0, 1, 1, 0, 1.0, (SnapshotFile(path, sha(data), len(data)),))


def objects_of(folder: Path) -> set[str]:
    return {path.name for path in (folder / JOB / "objects").rglob("*") if path.is_file()}


def test_an_object_can_come_in_several_tries(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    pieces = single().pieces
    assert store.missing(JOB, pieces) == {NAME: 0}
    assert not append(store, DATA[:100])
    assert store.missing(JOB, pieces) == {NAME: 100}
    assert SnapshotStore(tmp_path).missing(JOB, pieces) == {NAME: 100}
    with pytest.raises(SnapshotOffsetError) as raised:
        append(store, DATA[120:], 120)
    assert raised.value.held == 100
    assert append(SnapshotStore(tmp_path), DATA[100:], 100)
    assert store.missing(JOB, pieces) == {}
    assert store.open(JOB, NAME).read() == DATA


def test_who_goes_back_overwrites_what_was_there(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    append(store, b"?" * 200)
    assert append(store, DATA, 0)
    assert store.open(JOB, NAME).read() == DATA


def test_a_wrong_object_is_thrown_away(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    append(store, b"?" * 100)
    with pytest.raises(SnapshotDamagedError, match="has another digest"):
        append(store, DATA[100:], 100)
    assert store.missing(JOB, single().pieces) == {NAME: 0}
    with pytest.raises(SnapshotMissingError):
        store.open(JOB, NAME)


def test_an_object_is_not_longer_than_announced(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    with pytest.raises(SnapshotSizeError, match="more than the 300 bytes"):
        append(store, DATA + b"x")
    with pytest.raises(SnapshotSizeError, match="at most"):
        store.receive(JOB, NAME, 0, 1 << 60)


def test_who_begins_later_has_the_object_to_itself(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    with store.receive(JOB, NAME, 0, len(DATA)) as hanging:
        hanging.write(DATA[:100])
        with store.receive(JOB, NAME, 100, len(DATA)) as newer:
            with pytest.raises(SnapshotOffsetError, match="a later upload"):
                hanging.write(b"late")
            newer.write(DATA[100:])
            assert newer.finish()
    assert store.open(JOB, NAME).read() == DATA


def test_several_small_objects_come_at_once_and_those_before_a_cut_are_kept(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    small = [b"", b"a", b"b\n" * 10]
    pack = b"".join(frame(sha(each), each) for each in small)
    assert store.unpack(JOB, pack) == 3
    assert [store.open(JOB, sha(each)).read() for each in small] == small
    with pytest.raises(SnapshotDamagedError, match="cut off"):
        store.unpack(JOB, frame(sha(b"c"), b"c") + frame(NAME, DATA)[:-1])
    assert objects_of(tmp_path) == {sha(each) for each in (*small, b"c")}


@pytest.mark.parametrize(
    "pack",
    [
        b"\n",
        b"{}\n",
        b"[]\n",
        b'{"sha256": "../../x", "size": 0}\n',
        b'{"sha256": "%s", "size": -1}\n' % NAME.encode(),
        b'{"sha256": "%s", "size": true}\n' % NAME.encode(),
        b'{"sha256": "%s", "size": %d}\n' % (NAME.encode(), SMALL + 1),
        b"x" * 1000,
        b"[" * 150,
        frame(NAME, b"something else"),
    ],
)
def test_what_is_no_pack_of_objects_is_refused(tmp_path: Path, pack: bytes) -> None:
    with pytest.raises(SnapshotDamagedError):
        SnapshotStore(tmp_path).unpack(JOB, pack)
    assert objects_of(tmp_path) == set()


def test_a_snapshot_counts_when_all_of_it_is_there(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    with pytest.raises(SnapshotIncompleteError) as raised:
        store.commit(JOB, single())
    assert raised.value.missing == (NAME,)
    assert store.manifests(JOB).manifests == ()
    append(store, DATA)
    assert store.commit(JOB, single()) == 1
    assert store.manifests(JOB).manifests == (replace(single(), number=1),)


def test_a_job_that_has_nothing_yet_has_a_snapshot_too(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "snapshots")
    assert store.commit(JOB, Manifest(JOB, 0, 1, 1, -1, 1.0, ())) == 1
    assert store.manifests(JOB).manifests[0].pieces == ()


def test_numbers_grow_whatever_is_damaged_or_sent(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    append(store, DATA)
    assert store.commit(JOB, single()) == 1
    assert store.commit(JOB, replace(single(), at=2.0, number=40)) == 40
    assert store.commit(JOB, replace(single(), at=3.0, number=7)) == 41
    (tmp_path / JOB / "manifests" / f"{41:012d}.json").write_bytes(b"torn")
    assert store.commit(JOB, replace(single(), at=4.0)) == 42


def test_the_same_snapshot_sent_again_counts_once(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    append(store, DATA)
    assert [store.commit(JOB, single()), store.commit(JOB, single())] == [1, 1]


def test_an_earlier_worker_cannot_replace_what_a_later_one_sent(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    home = home_at(1)
    keep(store, home, manifest_of(home, 1, revision=3, attempt=2))
    for revision, attempt in ((2, 9), (3, 1)):
        with pytest.raises(SnapshotStaleError, match="succeeded by 3, 2"):
            keep(store, home, manifest_of(home, 5, revision=revision, attempt=attempt))
    assert keep(store, home, manifest_of(home, 2, revision=3, attempt=2)) == 2
    assert keep(store, home, manifest_of(home, 3, revision=4, attempt=0)) == 3


def test_the_last_snapshots_are_kept_and_what_they_consist_of(tmp_path: Path) -> None:
    homes = [home_at(batch) for batch in range(6)]
    store = kept(tmp_path, homes, keep=2)
    assert [each.batch for each in store.manifests(JOB).manifests] == [5, 4]
    assert objects_of(tmp_path) == {sha(data) for home in homes[-2:] for data in home.values()}
    assert [each.batch for each in store.manifests(JOB, limit=1).manifests] == [5]
    assert [each.batch for each in store.manifests(JOB, before=6, limit=1).manifests] == [4]


def test_an_upload_under_way_outlives_a_commit_but_not_for_ever(tmp_path: Path) -> None:
    clock = Clock()
    store = SnapshotStore(tmp_path, clock=clock)
    append(store, b"other", name=sha(b"other"), size=5)
    append(store, DATA[:10])
    for path in (tmp_path / JOB).rglob("*"):
        if path.is_file():
            os.utime(path, (clock.now, clock.now))
    for batch in range(4):
        keep(store, home_at(batch), manifest_of(home_at(batch), batch))
    for path in (tmp_path / JOB / "objects").rglob("*"):
        if path.is_file():
            os.utime(path, (clock.now, clock.now))
    assert sha(b"other") in objects_of(tmp_path)
    assert store.missing(JOB, single().pieces) == {NAME: 10}
    clock.now += UNREFERENCED_SECONDS + 1
    keep(store, home_at(4), manifest_of(home_at(4), 4))
    wanted = {sha(data) for batch in (2, 3, 4) for data in home_at(batch).values()}
    assert objects_of(tmp_path) == wanted
    assert store.missing(JOB, single().pieces) == {NAME: 0}


def test_nothing_is_swept_while_a_manifest_cannot_be_read(tmp_path: Path) -> None:
    clock = Clock()
    store = kept(tmp_path, [home_at(0), home_at(1)], clock=clock)
    manifest = tmp_path / JOB / "manifests" / f"{2:012d}.json"
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:-5])
    clock.now = 1e11
    store.tidy()
    manifest.write_bytes(whole)
    assert [each.batch for each in store.manifests(JOB).manifests] == [1, 0]
    assert objects_of(tmp_path) >= {sha(data) for data in home_at(1).values()}


@pytest.mark.parametrize("damage", [b"", b"short", b"!" * len(DATA)])
def test_an_object_that_is_damaged_on_disk_is_asked_for_again(tmp_path: Path, damage: bytes) -> None:
    store = SnapshotStore(tmp_path)
    append(store, DATA)
    store.commit(JOB, single())
    path = store.path(JOB, NAME)
    path.write_bytes(damage)
    os.utime(path, (5.0, 5.0))
    for other in (store, SnapshotStore(tmp_path)):
        with pytest.raises(SnapshotIncompleteError):
            other.commit(JOB, replace(single(), at=2.0))
    assert store.missing(JOB, single().pieces) == {NAME: 0}
    append(store, DATA)
    assert store.commit(JOB, replace(single(), at=2.0)) == 2


def test_digests_are_not_computed_again_as_long_as_files_are_what_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(tmp_path, [home_at(0)])
    store = SnapshotStore(tmp_path)
    read: list[str] = []
    objects = store._job(JOB).objects
    real = objects.is_intact

    def noted(name: str) -> bool:
        read.append(name)
        return real(name)

    monkeypatch.setattr(objects, "is_intact", noted)
    keep(store, home_at(1), manifest_of(home_at(1), 1))
    assert read == []
    os.utime(store.path(JOB, sha(b"")), (7.0, 7.0))
    keep(store, home_at(2), manifest_of(home_at(2), 2))
    assert read == [sha(b"")]


def test_damaged_manifests_are_left_out_and_told(tmp_path: Path) -> None:
    store = kept(tmp_path, [home_at(batch) for batch in range(3)])
    folder = tmp_path / JOB / "manifests"
    newest, middle, _ = sorted(folder.iterdir(), reverse=True)
    middle.write_bytes(newest.read_bytes())
    newest.write_bytes(newest.read_bytes()[:-1])
    listed = store.manifests(JOB)
    assert [each.number for each in listed.manifests] == [1]
    assert [reason.partition(":")[0] for reason in listed.damaged] == ["snapshot 3", "snapshot 2"]


def test_a_worker_with_a_successor_has_nothing_forgotten(tmp_path: Path) -> None:
    store = kept(tmp_path, [home_at(0)])
    [newest] = store.manifests(JOB).manifests
    with pytest.raises(SnapshotStaleError, match="has been succeeded"):
        store.forget(JOB, revision=newest.revision, attempt=newest.attempt - 1)
    assert store.manifests(JOB).manifests == (newest,)
    store.forget(JOB, revision=newest.revision, attempt=newest.attempt)
    assert store.manifests(JOB).manifests == ()


def test_all_of_a_job_is_forgotten_and_nothing_else(tmp_path: Path) -> None:
    store = kept(tmp_path, [home_at(0)])
    upload(store, DATA, 0, len(DATA), name=NAME, job="other")
    assert store.jobs() == ["count", "other"]
    store.forget(JOB, revision=9, attempt=1)
    store.forget(JOB, revision=9, attempt=1)
    assert store.jobs() == ["other"]
    assert store.manifests(JOB).manifests == ()
    assert store.missing(JOB, single().pieces) == {NAME: 0}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"]


@pytest.mark.parametrize("job", ["", ".", "..", "../x", "a/b", ".hidden", "a\x00", "x" * 201, "é", "a\n"])
def test_names_of_jobs_lead_nowhere_else(tmp_path: Path, job: str) -> None:
    store = SnapshotStore(tmp_path / "snapshots")
    calls: list[Callable[[], Any]] = [
        lambda: store.missing(job, ()),
        lambda: store.receive(job, NAME, 0, 1),
        lambda: store.unpack(job, b""),
        lambda: store.commit(job, replace(single(), job=job)),
        lambda: store.manifests(job),
        lambda: store.open(job, NAME),
        lambda: store.forget(job, revision=9, attempt=1),
    ]
    for call in calls:
        with pytest.raises(SnapshotNameError):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "..", "a" * 63, "A" * 64, "../" + "a" * 61, "a" * 64 + "\n"])
def test_names_of_objects_lead_nowhere_else(tmp_path: Path, name: str) -> None:
    store = SnapshotStore(tmp_path)
    for call in (lambda: store.open(JOB, name), lambda: append(store, b"", name=name)):
        with pytest.raises(SnapshotNameError):
            call()
    assert content_of(tmp_path) == {}


def test_who_only_asks_leaves_nothing_in_memory_and_there_are_not_jobs_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SnapshotStore(tmp_path)
    for number in range(10):
        store.missing(f"job-{number}", ())
        store.manifests(f"job-{number}")
    assert store._jobs == {}
    monkeypatch.setattr("penstock.backups.snapshots.snapshot_store.MOST_JOBS", 2)
    for name in ("a", "b", "a"):
        upload(store, DATA, 0, len(DATA), name=NAME, job=name)
    with pytest.raises(SnapshotFullError, match="2 jobs"):
        upload(store, DATA, 0, len(DATA), name=NAME, job="c")
    store.forget("a", revision=9, attempt=1)
    assert upload(store, DATA, 0, len(DATA), name=NAME, job="c")


def test_a_snapshot_of_another_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SnapshotNameError, match="of 'other', not of 'count'"):
        SnapshotStore(tmp_path).commit(JOB, replace(single(), job="other"))


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    kept(tmp_path / "snapshots", [home_at(0)])
    modes = {
        (path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in (tmp_path / "snapshots").rglob("*")
    }
    assert modes == {(True, 0o700), (False, 0o600)}


def test_there_must_be_room_before_anything_comes(tmp_path: Path) -> None:
    with pytest.raises(SnapshotFullError, match="free some disk space"):
        append(SnapshotStore(tmp_path, reserve=1 << 60), DATA)
    assert content_of(tmp_path) == {}


@pytest.mark.parametrize("call", ["fsync", "replace", "mkdir", "open"])
def test_a_full_disk_is_told_and_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = kept(tmp_path, [home_at(0)])
    before = store.manifests(JOB)

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(SnapshotFullError):
            keep(store, home_at(1), manifest_of(home_at(1), 1))
    assert store.manifests(JOB) == before
    assert keep(store, home_at(1), manifest_of(home_at(1), 1)) == 2


def test_a_supervisor_that_dies_at_any_moment_has_whole_snapshots(tmp_path: Path) -> None:
    """Every call that changes the disk is the last one once."""
    homes = [home_at(batch) for batch in range(3)]
    calls, done = 0, False
    while not done:
        folder = tmp_path / str(calls)
        committed = -1
        try:
            with killed_after(calls):
                store = SnapshotStore(folder, keep=2)
                for batch, home in enumerate(homes):
                    keep(store, home, manifest_of(home, batch))
                    committed = batch
            done = True
        except KilledError:
            pass
        store = SnapshotStore(folder, keep=2)
        store.tidy()
        listed = store.manifests(JOB)
        assert listed.damaged == ()
        assert committed == -1 or listed.manifests[0].batch in (committed, committed + 1), calls
        for manifest in listed.manifests:
            found = {piece.path: store.open(JOB, piece.sha256).read() for piece in manifest.pieces}
            assert found == homes[manifest.batch], (calls, manifest.batch)
        number = max((each.number for each in listed.manifests), default=0)
        assert keep(store, homes[2], replace(manifest_of(homes[2], 2), at=99.0)) == number + 1
        calls += 1
    assert calls > 100
