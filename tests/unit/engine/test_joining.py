"""A replica copies another one that goes on: what it gets is what that was after one of its batches."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.engine import state
from penstock.engine.agreement import joining
from penstock.engine.agreement.folder import Commit
from penstock.engine.agreement.joining import Copier, CopyError, copy_snapshot, empty, join_blank, skip_to
from penstock.engine.blueprint import Folders
from penstock.engine.continuation import remove_leftovers
from penstock.engine.ledger import Entry, Ledger
from penstock.engine.packing import pack, unpack
from penstock.engine.sealed import read_sealed, write_sealed
from penstock.engine.state import BucketState, read_bucket, remove_before
from penstock.engine.takeover import Claim, current, take_over
from penstock.errors import SupersededError

BUCKETS = 2


class Runner:
    """A replica whose state after batch b is a function of b: each of three keys counts the batches."""

    def __init__(self, base: Path, revision: int = 1) -> None:
        self.base = base
        self.folders = Folders(str(take_over(base, Claim(revision, 1))), taken=True)
        self.folders.create()
        self.folders.structure.write_text('{"name": "job"}')
        self.ledger = Ledger(self.folders.ledger)
        self.last: Entry | None = self.ledger.latest()
        state.forget(self.folders.state)

    def step(self) -> None:
        """Run one batch."""
        before = self.last
        batch = before.batch + 1 if before else 0
        heads = dict(before.state) if before else {}
        for bucket in range(BUCKETS):
            held = BucketState(self.folders.state, bucket, heads.get(bucket))
            counts = held.states.setdefault("count", {})
            counts[batch % 3] = batch
            held.changed("count", [batch % 3])
            new = held.save(batch, uuid4().hex)
            assert new is not None
            heads[bucket] = new
        name = f"{batch:012d}-{uuid4().hex}"
        write_sealed(self.folders.feedback / name, pack(([batch],)))
        times = {
            "now": float(batch),
            "flushed": False,
            "highs": {},
            "marks": {},
            "pending": {"0": {"w": 5.0}},
        }
        entry = Entry(batch, {"batch": batch + 1}, {"out": [batch]}, [name], heads, BUCKETS, times)
        assert self.ledger.commit(entry)
        for old in before.feedback if before else ():
            (self.folders.feedback / old).unlink()
        for bucket, head in heads.items():
            if before and before.state[bucket].base_batch != head.base_batch:
                remove_before(self.folders.state, bucket, head.base_batch)
        if batch % 5 == 0:
            self.ledger.trim(3)
        self.last = entry


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path / "job")


@pytest.fixture
def own(tmp_path: Path) -> Folders:
    folders = Folders(str(take_over(tmp_path / "job~1", Claim(2, 1))), taken=True)
    folders.create()
    return folders


@pytest.fixture
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_MOST_DELTAS", 4)


def check(own: Folders, batch: int) -> Entry:
    """See that a folder holds all of one batch and nothing of another."""
    entry = Ledger(own.ledger).latest()
    assert entry is not None
    assert entry.batch == batch
    assert json.loads(own.structure.read_text()) == {"name": "job"}
    remove_leftovers(own, entry)
    expected = {number % 3: number for number in range(max(0, batch - 2), batch + 1)}
    for bucket in range(BUCKETS):
        assert read_bucket(own.state, bucket, entry.state[bucket]) == {"count": expected}
    assert [unpack(read_sealed(own.feedback / name))[0] for name in entry.feedback] == [[batch]]
    assert entry.receipts == {"out": [batch]}
    return entry


def test_a_copy_is_whole_and_shares_no_file(runner: Runner, own: Folders) -> None:
    for _ in range(9):
        runner.step()
    assert copy_snapshot(runner.base, own) == 8
    check(own, 8)
    inodes = {path.stat().st_ino for path in runner.base.rglob("*") if path.is_file()}
    copied = [path for path in Path(own.root).rglob("*") if path.is_file()]
    assert copied
    assert not inodes & {path.stat().st_ino for path in copied}
    assert all(path.stat().st_mode & 0o077 == 0 for path in copied)


@pytest.mark.usefixtures("short_chains")
def test_what_was_there_before_is_gone(runner: Runner, own: Folders, tmp_path: Path) -> None:
    """The own history may be longer than that of the other, and of another mind."""
    other = Runner(tmp_path / "job~2")
    for _ in range(30):
        other.step()
    copy_snapshot(other.base, own)
    own.checkpoint.mkdir()
    (own.checkpoint / "metadata").touch()
    for _ in range(3):
        runner.step()
    assert copy_snapshot(runner.base, own) == 2
    check(own, 2)
    assert not own.checkpoint.exists()
    assert len([path for path in own.state.rglob("*") if path.is_file()]) == 3 * BUCKETS


@pytest.mark.usefixtures("short_chains")
def test_one_that_commits_as_fast_as_it_can_is_copied_all_the_same(runner: Runner, own: Folders) -> None:
    runner.step()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            runner.step()

    thread = threading.Thread(target=work)
    thread.start()
    batches = []
    try:
        for _ in range(30):
            batches.append(copy_snapshot(runner.base, own))
            check(own, batches[-1])
    finally:
        stop.set()
        thread.join()
    assert batches == sorted(batches)
    assert batches[-1] > batches[0], "the other went on"


@pytest.mark.usefixtures("short_chains")
def test_a_standby_copies_only_what_is_new(
    runner: Runner, own: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str] = []
    put = Copier._put

    def counted(self: Copier, data: bytes, path: Path, *, sealed: bool = False) -> None:
        copied.append(path.name)
        put(self, data, path, sealed=sealed)

    monkeypatch.setattr(Copier, "_put", counted)
    copier = Copier(own)
    for _ in range(3):
        runner.step()
    assert copier.copy(runner.base) == 2
    assert len(copied) == 3 * BUCKETS + 2  # State, the feedback and the structure.
    copied.clear()
    assert copier.copy(runner.base) == 2
    assert copied == []
    runner.step()
    assert copier.copy(runner.base) == 3
    assert len(copied) == BUCKETS + 2
    check(own, 3)
    for batch in range(4, 40):
        runner.step()
        assert copier.copy(runner.base) == batch
        check(own, batch)
    assert len(list(own.ledger.iterdir())) == 1
    assert len([path for path in own.state.rglob("*") if path.is_file()]) <= 6 * BUCKETS
    # Another process goes on with what is there.
    copied.clear()
    runner.step()
    assert Copier(own).copy(runner.base) == 40
    assert len(copied) <= BUCKETS + 2
    check(own, 40)


class CrashError(Exception):
    """Stands for the death of the process."""


def _crashing(after: int) -> Callable[[], None]:
    left = [after]

    def look() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise CrashError

    return look


@pytest.mark.parametrize("standby", [False, True])
def test_a_crash_anywhere_leaves_all_or_nothing(runner: Runner, own: Folders, standby: bool) -> None:
    for _ in range(2):
        runner.step()
    copy_snapshot(runner.base, own)
    for _ in range(3):
        runner.step()
    for after in range(100):
        try:
            if standby:
                Copier(own).copy(runner.base, _crashing(after))
            else:
                copy_snapshot(runner.base, own, _crashing(after))
        except CrashError:
            kept = Ledger(own.ledger).latest_batch()
            assert kept == (1 if standby else -1)
            assert not (Path(own.root) / "copying").exists()
            if standby:
                check(own, 1)
            continue
        break
    assert after == 5 * BUCKETS + 1, "a crash was tried before each file"
    check(own, 4)


@pytest.mark.parametrize("name", ["ledger", "state", "feedback", "checkpoint"])
def test_a_crash_while_the_own_is_emptied_leaves_no_half(
    runner: Runner, own: Folders, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        runner.step()
    copy_snapshot(runner.base, own)
    unlink, rmtree = Path.unlink, shutil.rmtree

    def unlink_or_crash(path: Path, missing_ok: bool = False) -> None:
        if path.parent.name == name:
            raise CrashError
        unlink(path, missing_ok=missing_ok)

    def remove_or_crash(path: Path, ignore_errors: bool = False) -> None:
        if path.name == name:
            raise CrashError
        rmtree(path, ignore_errors=ignore_errors)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink_or_crash)
        patch.setattr(shutil, "rmtree", remove_or_crash)
        with pytest.raises(CrashError):
            empty(own)
    if name == "ledger":
        check(own, 4)
    else:
        assert Ledger(own.ledger).latest_batch() == -1
    assert copy_snapshot(runner.base, own) == 4
    check(own, 4)


def test_a_damaged_file_is_named_and_nothing_is_taken(runner: Runner, own: Folders) -> None:
    for _ in range(3):
        runner.step()
    assert runner.last is not None
    file = runner.folders.state / "00001" / runner.last.state[1].file
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CopyError, match=f"{file.name} is damaged"):
        copy_snapshot(runner.base, own)
    assert Ledger(own.ledger).latest_batch() == -1


def test_a_file_that_is_gone_for_good_ends_in_an_error(
    runner: Runner, own: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "_PAUSE", 0.0)
    runner.step()
    assert runner.last is not None
    (runner.folders.feedback / runner.last.feedback[0]).unlink()
    with pytest.raises(CopyError, match="changed 50 times"):
        copy_snapshot(runner.base, own)


def test_one_without_a_batch_or_a_folder_has_nothing_to_copy(runner: Runner, own: Folders) -> None:
    with pytest.raises(CopyError, match="no batch to go on from"):
        copy_snapshot(runner.base, own)
    with pytest.raises(CopyError, match="never begun"):
        copy_snapshot(runner.base.with_name("job~7"), own)


def test_a_folder_that_is_taken_over_meanwhile_is_found_again(runner: Runner, own: Folders) -> None:
    for _ in range(3):
        runner.step()
    revisions = iter(range(2, 100))

    def look() -> None:
        if (revision := next(revisions)) < 8:
            take_over(runner.base, Claim(revision, 1))

    assert copy_snapshot(runner.base, own, look) == 2
    assert current(runner.base) == Claim(7, 1)
    check(own, 2)


def test_who_loses_its_own_folder_meanwhile_is_superseded(runner: Runner, own: Folders) -> None:
    for _ in range(3):
        runner.step()
    looks = iter(range(100))

    def look() -> None:
        if next(looks) == 3:
            take_over(Path(own.root).parent, Claim(9, 1))

    with pytest.raises(SupersededError):
        copy_snapshot(runner.base, own, look)
    with pytest.raises(SupersededError):
        copy_snapshot(runner.base, own)
    assert not (Path(own.root) / "ledger").exists()


def test_how_far_others_are(runner: Runner) -> None:
    assert joining.last_batch(runner.base.with_name("job~7")) == -1
    assert joining.last_batch(runner.base) == -1
    runner.step()
    runner.step()
    assert joining.last_batch(runner.base) == 1
    assert joining.last_batch(runner.base, after=1) == -1, "what was done before a fresh start is forgotten"
    for note in (joining.STRAYED, "unwhole", "emptying-000002"):
        (Path(runner.folders.root) / note).touch()
        assert joining.last_batch(runner.base) == -1
        (Path(runner.folders.root) / note).unlink()
    take_over(runner.base, Claim(3, 1))
    assert joining.last_batch(runner.base, after=2) == 1


def test_one_that_lacks_something_itself_is_not_copied(runner: Runner, own: Folders) -> None:
    runner.step()
    runner.folders.unwhole.touch()
    with pytest.raises(CopyError, match="lacks what came before"):
        copy_snapshot(runner.base, own)


def test_a_blank_one_has_the_times_and_no_state(runner: Runner, own: Folders) -> None:
    for _ in range(4):
        runner.step()
    assert join_blank(runner.base, own) == 3
    assert runner.last is not None
    entry = Ledger(own.ledger).latest()
    assert entry is not None
    assert (entry.batch, entry.end, entry.buckets) == (3, {"batch": 4}, BUCKETS)
    assert (entry.state, entry.feedback, entry.receipts) == ({}, [], {})
    assert entry.times == {**runner.last.times, "pending": {}}
    assert json.loads(own.unwhole.read_text()) == runner.last.times
    assert json.loads(own.structure.read_text()) == {"name": "job"}
    # A whole copy later on makes it whole.
    copy_snapshot(runner.base, own)
    assert not own.unwhole.exists()


def test_who_keeps_nothing_goes_on_after_a_commit(own: Folders) -> None:
    skip_to(Commit(7, "id", "job", 1, {"batch": 8, "sources": {}}, {"out": ["receipt"]}), own)
    entry = Ledger(own.ledger).latest()
    assert entry == Entry(7, {"batch": 8, "sources": {}}, {"out": ["receipt"]})
