"""A replica copies another one that goes on: what it gets is what that was after one of its batches."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine.driver.job_start import start_job
from penstock.engine.storage import state_chain
from penstock.engine.storage.job_folder import Claim, JobFolders, current_claim, take_over
from penstock.engine.storage.keyed_state import read_bucket
from penstock.engine.storage.ledger import Ledger, LedgerEntry, remove_leftovers
from penstock.engine.storage.serialization import read_sealed
from penstock.errors import PenstockError, SupersededError
from penstock.graph.connector_api import Position, Receipt, Sink, SinkWriter, Source, Split, WriteContext
from penstock.record import Record
from penstock.replicas.agreement import replica_catch_up
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import Charter, Commit, ReplicaSpec
from penstock.replicas.agreement.replica_catch_up import (
    Copier,
    CopyError,
    clear_replica_folder,
    copy_snapshot,
    join_without_state,
    skip_to,
)
from penstock.testing.local_engine import LocalRuntime
from support.waiting import eventually

BUCKETS = 2
EACH = 8
"""How many keys a batch touches: so many that it changes every bucket."""


class Gate:
    """Lets a replica plan so many batches more; or all that it can, once it is open."""

    def __init__(self) -> None:
        self._allowed = threading.Semaphore(0)
        self._open = False

    def allow(self) -> None:
        self._allowed.release()

    def open(self) -> None:
        self._open = True
        self._allowed.release()

    def wait(self) -> None:
        if not self._open:
            self._allowed.acquire()


GATES: dict[str, Gate] = {}
"""By replica. Its job is copied on its way to where it runs, and a gate cannot be."""


class Steps(Source):
    """Has one number a batch, for some of the keys; the others come in the two batches after it."""

    def __init__(self, gate: str) -> None:
        self._gate = gate

    def begin(self) -> Position:
        return {"0": 0}

    def latest(self, after: Position) -> Position:
        GATES[self._gate].wait()
        return {"0": after["0"] + 1}

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        return [start["0"]]

    def read(self, split: Split) -> Iterator[list[Record]]:
        yield [Record(key, split, float(split)) for key in keys_of(split)]


class Newest(ps.StatefulTask):
    """Keeps the newest number of each key."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        return values[-1], [(key, value) for value in values]


class Numbers(Sink):
    """Its receipts are the numbers of a batch."""

    transactional = True
    shared = True

    def writer(self, context: WriteContext) -> SinkWriter:
        return _Numbers()

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        """Put nothing anywhere."""


class _Numbers(SinkWriter):
    def __init__(self) -> None:
        self._numbers: set[int] = set()

    def write(self, records: list[Record]) -> None:
        self._numbers |= {record.value for record in records}

    def finish(self) -> Receipt | None:
        return sorted(self._numbers) if self._numbers else None


def keys_of(number: int) -> list[int]:
    """Return the keys that have a number: each of three numbers has others."""
    return [3 * each + number % 3 for each in range(EACH)]


def counting(gate: str) -> ps.Job:
    """Return a job with state, with records on their way from batch to batch, and with open windows."""
    job = ps.Job("job", buckets=BUCKETS, parallelism=BUCKETS)
    source = job.source("in", Steps(gate))
    newest = source >> job.task("count", Newest())
    newest >> job.sink("out", Numbers())
    rekeyed = newest >> job.task("rekey", lambda r: (r.value, r.key))
    rekeyed >> job.task("again", Newest()) >> job.sink("on", Numbers())
    source >> job.task("windows", ps.Count(), window=ps.TimeWindow(10**6)) >> job.sink("closed", Numbers())
    return job


class Runner:
    """A replica whose state after batch b is a function of b. It does batches when it is told to."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self._gate = GATES[str(base)] = Gate()
        place = take_over(base, Claim(1, 1))
        self.folders = JobFolders(str(place), taken=True)
        self.ledger = Ledger(self.folders.ledger)
        agreement = base.with_name(f"{base.name}-agreement")
        AgreementFolder(agreement).create(Charter(0, {}))
        replica_spec = ReplicaSpec("job", 0, str(agreement))
        self._handle = start_job(
            counting(str(base)), LocalRuntime, folder=place, taken=True, replica_spec=replica_spec
        )

    def step(self, count: int = 1) -> None:
        """Run some batches, with all that is done after each of them."""
        for _ in range(count):
            goal = self._handle.report.batches + 1
            self._gate.allow()
            eventually(
                "a batch has ended",
                lambda goal=goal: self._handle.report.batches >= goal,  # type: ignore[misc]
                meanwhile=self._handle.check,
                every=0.001,
            )

    def run_freely(self) -> None:
        """Run batches from now on as fast as it can."""
        self._gate.open()

    @property
    def last(self) -> LedgerEntry:
        """The last batch, by its ledger."""
        found = self.ledger.latest()
        assert found is not None
        return found

    def close(self) -> None:
        """Stop it, unless what a test has done to its files has ended it before."""
        self._gate.open()
        with suppress(PenstockError, OSError):
            self._handle.stop()


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    started = Runner(tmp_path / "job")
    yield started
    started.close()


@pytest.fixture
def own(tmp_path: Path) -> JobFolders:
    folders = JobFolders(str(take_over(tmp_path / "job~1", Claim(2, 1))), taken=True)
    folders.create()
    return folders


@pytest.fixture
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_chain, "_MAX_DELTAS", 4)


def check(own: JobFolders, batch: int) -> LedgerEntry:
    """See that a folder holds all of one batch and nothing of another."""
    entry = Ledger(own.ledger).latest()
    assert entry is not None
    assert entry.batch == batch
    assert json.loads(own.structure.read_text())["name"] == "job"
    remove_leftovers(own, entry)
    found: dict[int, int] = {}
    for bucket in range(BUCKETS):
        found |= read_bucket(own.state, bucket, entry.state[bucket])["count"]
    numbers = range(max(0, batch - 2), batch + 1)
    assert found == {key: number for number in numbers for key in keys_of(number)}
    assert {path.name for path in own.feedback.iterdir()} == set(entry.feedback)
    assert entry.feedback
    for name in entry.feedback:
        assert int(name[:12]) == batch
        assert read_sealed(own.feedback / name)
    assert all(numbers == [batch] for numbers in entry.receipts["out"])
    return entry


def files(folders: JobFolders) -> set[str]:
    """Return the names of what the last batch consists of, but for its ledger entry."""
    return {path.name for path in (*folders.state.rglob("*"), *folders.feedback.iterdir()) if path.is_file()}


def test_a_copy_is_whole_and_shares_no_file(runner: Runner, own: JobFolders) -> None:
    runner.step(9)
    assert copy_snapshot(runner.base, own) == 8
    check(own, 8)
    inodes = {path.stat().st_ino for path in runner.base.rglob("*") if path.is_file()}
    copied = [path for path in Path(own.root).rglob("*") if path.is_file()]
    assert copied
    assert not inodes & {path.stat().st_ino for path in copied}
    assert all(path.stat().st_mode & 0o077 == 0 for path in copied)


@pytest.mark.usefixtures("short_chains")
def test_what_was_there_before_is_gone(runner: Runner, own: JobFolders, tmp_path: Path) -> None:
    """The own history may be longer than that of the other, and of another mind."""
    other = Runner(tmp_path / "job~2")
    other.step(30)
    other.close()
    copy_snapshot(other.base, own)
    own.checkpoint.mkdir()
    (own.checkpoint / "metadata").touch()
    runner.step(3)
    assert copy_snapshot(runner.base, own) == 2
    check(own, 2)
    assert not own.checkpoint.exists()
    assert len([path for path in own.state.rglob("*") if path.is_file()]) == 3 * BUCKETS


@pytest.mark.usefixtures("short_chains")
def test_one_that_commits_as_fast_as_it_can_is_copied_all_the_same(runner: Runner, own: JobFolders) -> None:
    runner.step()
    runner.run_freely()
    batches = []
    for _ in range(30):
        batches.append(copy_snapshot(runner.base, own))
        check(own, batches[-1])
    assert batches == sorted(batches)
    assert batches[-1] > batches[0], "the other went on"


@pytest.mark.usefixtures("short_chains")
def test_a_standby_copies_only_what_is_new(
    runner: Runner, own: JobFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str] = []
    put = Copier._put

    def counted(self: Copier, data: bytes, path: Path, *, sealed: bool = False) -> None:
        copied.append(path.name)
        put(self, data, path, sealed=sealed)

    monkeypatch.setattr(Copier, "_put", counted)
    copier = Copier(own)

    def copies_what_is_new(copier: Copier, batch: int) -> int:
        before = files(own)
        copied.clear()
        assert copier.copy(runner.base) == batch
        new = files(own) - before
        assert sorted(copied) == sorted([*new, own.structure.name])
        check(own, batch)
        return len(new) - len(runner.last.feedback)

    runner.step(3)
    assert copies_what_is_new(copier, 2) == 3 * BUCKETS
    copied.clear()
    assert copier.copy(runner.base) == 2
    assert copied == []
    for batch in range(3, 40):
        runner.step()
        assert copies_what_is_new(copier, batch) == BUCKETS
    assert len(list(own.ledger.iterdir())) == 1
    assert len([path for path in own.state.rglob("*") if path.is_file()]) <= 6 * BUCKETS
    # Another process goes on with what is there.
    runner.step()
    assert copies_what_is_new(Copier(own), 40) == BUCKETS


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
def test_a_crash_anywhere_leaves_all_or_nothing(runner: Runner, own: JobFolders, standby: bool) -> None:
    runner.step(2)
    copy_snapshot(runner.base, own)
    runner.step(3)
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
    assert after == len(files(runner.folders)) > 5 * BUCKETS, "a crash was tried before each file"
    check(own, 4)


@pytest.mark.parametrize("name", ["ledger", "state", "feedback", "checkpoint"])
def test_a_crash_while_the_own_is_emptied_leaves_no_half(
    runner: Runner, own: JobFolders, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.step(5)
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
            clear_replica_folder(own)
    if name == "ledger":
        check(own, 4)
    else:
        assert Ledger(own.ledger).latest_batch() == -1
    assert copy_snapshot(runner.base, own) == 4
    check(own, 4)


def test_a_damaged_file_is_named_and_nothing_is_taken(runner: Runner, own: JobFolders) -> None:
    runner.step(3)
    file = runner.folders.state / "shared" / runner.last.state[1].file
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CopyError, match=f"{file.name} is damaged"):
        copy_snapshot(runner.base, own)
    assert Ledger(own.ledger).latest_batch() == -1


def test_a_file_that_is_gone_for_good_ends_in_an_error(
    runner: Runner, own: JobFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_catch_up, "_PAUSE", 0.0)
    runner.step()
    (runner.folders.feedback / runner.last.feedback[0]).unlink()
    with pytest.raises(CopyError, match="during each of 50 attempts"):
        copy_snapshot(runner.base, own)


def test_one_without_a_batch_or_a_folder_has_nothing_to_copy(runner: Runner, own: JobFolders) -> None:
    with pytest.raises(CopyError, match="no batch to copy"):
        copy_snapshot(runner.base, own)
    with pytest.raises(CopyError, match="never run"):
        copy_snapshot(runner.base.with_name("job~7"), own)


def test_a_folder_that_is_taken_over_meanwhile_is_found_again(runner: Runner, own: JobFolders) -> None:
    runner.step(3)
    revisions = iter(range(2, 100))

    def look() -> None:
        if (revision := next(revisions)) < 8:
            take_over(runner.base, Claim(revision, 1))

    assert copy_snapshot(runner.base, own, look) == 2
    assert current_claim(runner.base) == Claim(7, 1)
    check(own, 2)


def test_who_loses_its_own_folder_meanwhile_is_superseded(runner: Runner, own: JobFolders) -> None:
    runner.step(3)
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
    assert replica_catch_up.last_batch(runner.base.with_name("job~7")) == -1
    assert replica_catch_up.last_batch(runner.base) == -1
    runner.step()
    runner.step()
    assert replica_catch_up.last_batch(runner.base) == 1
    assert replica_catch_up.last_batch(runner.base, after=1) == -1, (
        "what was done before a fresh start is forgotten"
    )
    for note in (replica_catch_up.STRAYED, "unwhole", "emptying-000002"):
        (Path(runner.folders.root) / note).touch()
        assert replica_catch_up.last_batch(runner.base) == -1
        (Path(runner.folders.root) / note).unlink()
    take_over(runner.base, Claim(3, 1))
    assert replica_catch_up.last_batch(runner.base, after=2) == 1


def test_one_that_lacks_something_itself_is_not_copied(runner: Runner, own: JobFolders) -> None:
    runner.step()
    runner.folders.state_incomplete.touch()
    with pytest.raises(CopyError, match="lacks the state from before"):
        copy_snapshot(runner.base, own)


def test_a_blank_one_has_the_times_and_no_state(runner: Runner, own: JobFolders) -> None:
    runner.step(4)
    assert join_without_state(runner.base, own) == 3
    entry = Ledger(own.ledger).latest()
    assert entry is not None
    assert (entry.batch, entry.end, entry.buckets) == (3, runner.last.end, BUCKETS)
    assert (entry.state, entry.feedback, entry.receipts) == ({}, [], {})
    assert runner.last.times["pending"]
    assert entry.times == {**runner.last.times, "pending": {}}
    assert json.loads(own.state_incomplete.read_text()) == runner.last.times
    assert own.structure.read_text() == runner.folders.structure.read_text()
    # A whole copy later on makes it whole.
    copy_snapshot(runner.base, own)
    assert not own.state_incomplete.exists()


def test_who_keeps_nothing_goes_on_after_a_commit(own: JobFolders) -> None:
    skip_to(Commit(7, "id", "job", 1, {"batch": 8, "sources": {}}, {"out": ["receipt"]}), own)
    entry = Ledger(own.ledger).latest()
    assert entry == LedgerEntry(7, {"batch": 8, "sources": {}}, {"out": ["receipt"]}, buckets=0)
