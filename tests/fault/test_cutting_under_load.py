"""Snapshots taken all the time while a job commits, its logs are appended to, merged and shortened."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from little_job import JOB, LittleJob

from penstock.backups.snapshots.snapshot_cutter import CutError, SnapshotCutter
from penstock.backups.snapshots.snapshot_manifest import Manifest
from penstock.backups.snapshots.snapshot_restore import make_log_folders
from penstock.engine.driver import batch_committer
from penstock.engine.storage import state_chain
from penstock.engine.storage.serialization import write_sealed
from penstock.errors import JobFailedError
from penstock.log import Log, Retention, log_folder
from penstock.record import Record
from support.waiting import DEADLINE

CUTS, BATCHES = 20, 50


class Threads:
    """Does several things again and again until told to stop; raises what went wrong in one of them."""

    def __init__(self, *tasks: Callable[[], object]) -> None:
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(task,)) for task in tasks]

    def _run(self, task: Callable[[], object]) -> None:
        try:
            while not self._stop.is_set():
                task()
        except BaseException as error:
            self._errors.append(error)

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]


def restored(cutter: SnapshotCutter, manifest: Manifest, home: Path) -> Path:
    """Make a home of a snapshot."""
    for piece in manifest.pieces:
        target = home / piece.path
        target.parent.mkdir(parents=True, exist_ok=True)
        with cutter.open(piece) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
        assert target.stat().st_size == piece.size
    make_log_folders(home)
    return home


@pytest.mark.parametrize("seconds", [2.0, pytest.param(30.0, marks=pytest.mark.full)])
def test_every_cut_of_a_job_that_runs_is_the_work_of_whole_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(state_chain, "_MAX_DELTAS", 4)  # Bases are made, and chains removed, all the time.
    home = tmp_path / "home"
    source = Log.create(log_folder("in", home), retain_consumed=True, upkeep=False)
    fed = 0

    def feed() -> None:
        nonlocal fed
        source.append([Record(None, fed + n) for n in range(7)])
        fed += 7
        time.sleep(0.002)

    def keep_up() -> None:
        # Not Log.append's own pace: merging shall meet the cuts as often as can be.
        for name in ("in", "out"):
            Log.open(log_folder(name, home)).compact()
        Log.open(log_folder("in", home)).retain()
        time.sleep(0.03)

    feed()
    job = LittleJob(home)

    def fail_tasks() -> None:
        # What a task that was given up has left of its state, which no entry names.
        left = job.folder / "state" / "shared" / f"{job.batch + 1:012d}-failed.sections"
        if left.parent.exists() and not left.exists():
            write_sealed(left, b"failed" * 10_000)
        time.sleep(0.004)

    cutter = SnapshotCutter(home, JOB, tmp_path / "cut")
    manifest: Manifest | None = None
    cuts, busy = 0, 0
    with job.start() as handle, Threads(feed, keep_up, fail_tasks):
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds or cuts < CUTS or job.batch <= BATCHES:
            assert passed < DEADLINE, f"{cuts} cuts, {busy} given up, {job.batch} batches"
            handle.check()
            try:
                cut = cutter.cut(number=cuts, revision=1, attempt=1, before=manifest, now=0.0)
            except CutError:
                busy += 1
                continue
            if cut is None:
                continue
            manifest = cut
            cuts += 1
            again = restored(cutter, cut, tmp_path / f"restored-{cuts}")
            after = LittleJob(again, revision=2)
            assert after.batch == cut.batch
            # It goes on from there, to the end of the input that the cut has.
            after.run()
            after.check()
            shutil.rmtree(again)
    print(f"{cuts} cuts, {busy} given up, {job.batch} batches")


def test_a_cut_without_news_is_none_and_digests_are_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    source = Log.create(log_folder("in", home))
    source.append([Record(None, n) for n in range(40)])
    job = LittleJob(home)
    cutter = SnapshotCutter(home, JOB, tmp_path / "cut")
    computed: list[str] = []
    digest = cutter._held.digest

    def counted(name: str) -> tuple[str, int]:
        computed.extend([name] if name.startswith("new-") else [])
        return digest(name)

    with job.start() as handle:
        job.wait_done(handle)
        first = cutter.cut(number=1, revision=1, attempt=1, before=None, now=1.0)
        assert first is not None
        assert first.batch == job.batch
        assert cutter.cut(number=2, revision=1, attempt=1, before=first, now=2.0) is None

        monkeypatch.setattr(cutter._held, "digest", counted)
        source.append([Record(None, n) for n in range(40, 80)])
        job.wait_done(handle)
        second = cutter.cut(number=2, revision=1, attempt=1, before=first, now=3.0)
    assert second is not None
    assert len(computed) == len(set(second.pieces) - set(first.pieces))
    held = {path.name for path in (tmp_path / "cut").iterdir()}
    assert held == {piece.sha256 for piece in second.pieces}, "what no snapshot needs is let go"

    # Another process, another attempt: the links tell the digests.
    computed.clear()
    job.folder.rename(job.folder.with_name("000001-0002"))
    later = SnapshotCutter(home, JOB, tmp_path / "cut")
    digest = later._held.digest
    monkeypatch.setattr(later._held, "digest", counted)
    third = later.cut(number=3, revision=1, attempt=2, before=None, now=4.0)
    assert third is not None
    assert not computed
    assert {p.sha256 for p in third.pieces} == {p.sha256 for p in second.pieces}


def test_segments_that_are_staged_only_are_in_the_cut_and_come_out_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    Log.create(log_folder("in", home)).append([Record(None, n) for n in range(20)])
    job = LittleJob(home)

    def die(*_: object) -> None:
        raise InterruptedError("killed between entry and publishing")

    with monkeypatch.context() as patched:
        patched.setattr(batch_committer, "publish", die)
        with pytest.raises(JobFailedError, match="killed between"):
            job.run()
    cutter = SnapshotCutter(home, JOB, tmp_path / "cut")
    cut = cutter.cut(number=1, revision=1, attempt=1, before=None, now=1.0)
    assert cut is not None
    staged = [piece for piece in cut.pieces if "/staging/" in piece.path]
    assert staged
    for path in (home / "logs" / "out" / "staging").iterdir():
        assert path.stat().st_nlink == 1, "a second name would have it taken for published"
    after = LittleJob(restored(cutter, cut, tmp_path / "again"), revision=2)
    after.run()
    after.check()


def test_a_cut_before_the_first_batch_has_the_input_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    source = Log.create(log_folder("in", home), partitions=1)
    source.append([Record(None, n) for n in range(20)])
    LittleJob(home)
    cutter = SnapshotCutter(home, JOB, tmp_path / "cut")
    cut = cutter.cut(number=1, revision=1, attempt=1, before=None, now=1.0)
    assert cut is not None
    assert cut.batch == -1
    after = LittleJob(restored(cutter, cut, tmp_path / "again"), revision=2)
    after.run()
    after.check()


def test_a_folder_that_another_worker_has_cannot_be_cut(tmp_path: Path) -> None:
    home = tmp_path / "home"
    Log.create(log_folder("in", home)).set_retention(Retention())
    LittleJob(home)
    LittleJob(home, revision=2)
    with pytest.raises(CutError, match="another worker"):
        SnapshotCutter(home, JOB, tmp_path / "cut").cut(number=1, revision=1, attempt=1, before=None, now=1.0)
    assert not list((tmp_path / "cut").iterdir())
