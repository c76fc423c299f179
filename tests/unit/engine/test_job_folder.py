"""A job's folder has one holder, and who had it before can do nothing any more."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.engine.storage.job_folder import Claim, JobFolders, current_claim, has_ledger, take_over
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.errors import JobFailedError, SupersededError


def _commit(folder: Path, batch: int) -> None:
    assert Ledger(folder / "ledger").commit(LedgerEntry(batch, {"batch": batch + 1}))


def test_the_first_worker_makes_the_folder(tmp_path: Path) -> None:
    folder = take_over(tmp_path / "job", Claim(1, 1))
    assert folder == tmp_path / "job" / "000001-0001"
    assert has_ledger(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert current_claim(tmp_path / "job") == Claim(1, 1)


def test_a_successor_has_what_the_predecessor_did_and_the_predecessor_nothing(tmp_path: Path) -> None:
    old = take_over(tmp_path, Claim(1, 1))
    (old / "lock").touch()
    (old / "checkpoint" / "commits").mkdir(parents=True)
    _commit(old, 0)
    new = take_over(tmp_path, Claim(1, 2))
    assert sorted(path.name for path in new.iterdir()) == ["ledger"]
    assert Ledger(new / "ledger").latest_batch() == 0
    with pytest.raises(SupersededError, match="another worker has taken over the job"):
        Ledger(old / "ledger").commit(LedgerEntry(1, {"batch": 2}))
    with pytest.raises(SupersededError):
        JobFolders(str(old), taken=True).create()
    assert not old.exists()


def test_what_a_predecessor_makes_anew_is_never_the_jobs_folder(tmp_path: Path) -> None:
    old = take_over(tmp_path, Claim(1, 1))
    new = take_over(tmp_path, Claim(2, 1))
    (old / "state" / "00000").mkdir(parents=True)
    (old / "checkpoint" / "offsets").mkdir(parents=True)
    with pytest.raises(SupersededError):
        JobFolders(str(old), taken=True).create()
    assert current_claim(tmp_path) == Claim(2, 1)
    third = take_over(tmp_path, Claim(3, 1))
    assert not old.exists()
    assert not new.exists()
    assert has_ledger(third)


def test_an_earlier_worker_is_superseded(tmp_path: Path) -> None:
    take_over(tmp_path, Claim(2, 3))
    for late in (Claim(1, 9), Claim(2, 2)):
        with pytest.raises(SupersededError, match="000002-0003 belongs to a later worker"):
            take_over(tmp_path, late)
    with pytest.raises(JobFailedError, match="same number"):
        take_over(tmp_path, Claim(2, 3))


def test_revisions_are_ordered_by_number_even_beyond_six_digits(tmp_path: Path) -> None:
    take_over(tmp_path, Claim(999_999, 1))
    assert take_over(tmp_path, Claim(1_000_000, 1)).name == "1000000-0001"
    with pytest.raises(SupersededError):
        take_over(tmp_path, Claim(999_999, 2))


def test_a_fresh_start_forgets_earlier_revisions_but_not_its_own(tmp_path: Path) -> None:
    _commit(take_over(tmp_path, Claim(1, 1)), 7)
    fresh = take_over(tmp_path, Claim(2, 1), fresh=True)
    assert Ledger(fresh / "ledger").latest_batch() == -1
    assert sorted(path.name for path in fresh.iterdir()) == ["ledger"]
    _commit(fresh, 0)
    again = take_over(tmp_path, Claim(2, 2), fresh=True)
    assert Ledger(again / "ledger").latest_batch() == 0


def test_a_fresh_start_forgets_up_to_a_revision_whoever_comes_first(tmp_path: Path) -> None:
    _commit(take_over(tmp_path, Claim(2, 1)), 7)
    first = take_over(tmp_path, Claim(4, 1), fresh=True, forget=2)
    assert Ledger(first / "ledger").latest_batch() == -1
    _commit(first, 0)
    moved = take_over(tmp_path, Claim(5, 1), fresh=True, forget=2)
    assert Ledger(moved / "ledger").latest_batch() == 0


@pytest.mark.parametrize("successor", [Claim(2, 2), Claim(3, 1)])
def test_a_fresh_start_that_died_half_way_is_finished_by_the_next_worker(
    tmp_path: Path, successor: Claim
) -> None:
    old = take_over(tmp_path, Claim(1, 1))
    for batch in range(3):
        _commit(old, batch)
    (old / "state" / "00000").mkdir(parents=True)
    (old / "emptying-000002").touch()
    old.rename(tmp_path / "000002-0001")
    (tmp_path / "000002-0001" / "ledger" / "000000000001.json").unlink()
    folder = take_over(tmp_path, successor)
    assert Ledger(folder / "ledger").latest_batch() == -1
    assert sorted(path.name for path in folder.iterdir()) == ["ledger"]


def test_a_fresh_start_that_never_came_to_it_is_forgotten(tmp_path: Path) -> None:
    old = take_over(tmp_path, Claim(1, 1))
    _commit(old, 0)
    (old / "emptying-000002").touch()
    folder = take_over(tmp_path, Claim(3, 1))
    assert Ledger(folder / "ledger").latest_batch() == 0
    assert sorted(path.name for path in folder.iterdir()) == ["ledger"]


def test_a_folder_that_is_gone_is_not_made_anew_unless_that_is_asked_for(tmp_path: Path) -> None:
    take_over(tmp_path, Claim(1, 1)).rename(tmp_path / "elsewhere")
    with pytest.raises(JobFailedError, match="is missing: restore it"):
        take_over(tmp_path, Claim(1, 2), patience=0.05)
    assert has_ledger(take_over(tmp_path, Claim(2, 1), fresh=True, patience=0.05))


def test_of_many_at_once_the_last_has_the_folder_and_all_others_none(tmp_path: Path) -> None:
    for round_ in range(20):
        base = tmp_path / str(round_)
        start = threading.Barrier(6)
        kept: list[Path] = []

        threads = [
            threading.Thread(target=_take, args=(base, attempt, start, kept)) for attempt in range(1, 7)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [folder.name for folder in kept if has_ledger(folder)] == ["000001-0006"]
        assert current_claim(base) == Claim(1, 6)


def _take(base: Path, attempt: int, start: threading.Barrier, kept: list[Path]) -> None:
    start.wait()
    with suppress(SupersededError):
        kept.append(take_over(base, Claim(1, attempt)))


class _Line:
    """Workers of one job that take over from each other, and the output that they publish."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.workers: list[_Worker] = []
        self.output: dict[int, set[str]] = {}

    def add(self) -> _Worker:
        worker = _Worker(self, Claim(1, len(self.workers) + 1))
        self.workers.append(worker)
        return worker


class _Worker:
    def __init__(self, line: _Line, claim: Claim) -> None:
        self.line = line
        self.name = claim.name
        self.dead = False
        self.ledger = Ledger(take_over(line.base, claim) / "ledger")
        self.last = self.ledger.latest()
        if self.last is not None:
            self.publish(self.last)

    def publish(self, entry: LedgerEntry) -> None:
        self.line.output.setdefault(entry.batch, set()).add(entry.end["by"])

    def step(self) -> None:
        """Run one batch, as a query does: commit it, and publish what stands."""
        batch = self.last.batch + 1 if self.last is not None else 0
        entry = LedgerEntry(batch, {"by": self.name})
        try:
            committed = self.ledger.commit(entry)
        except SupersededError:
            self.dead = True
            return
        if not committed:
            self.dead = True
            return
        self.publish(entry)
        self.last = entry


@pytest.mark.parametrize("seed", range(100))
def test_however_takeovers_and_commits_interleave_each_batch_happens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = random.Random(seed)
    line = _Line(tmp_path)
    real: Callable[..., None] = os.link
    depth = 0

    def link(source: Path, target: Path) -> None:
        """Let a successor take over right before, within or right after a commit, and run."""
        nonlocal depth
        depth += 1
        moment = dice.choice(["before", "within", "after", "never", "never"]) if depth == 1 else "never"
        try:
            if moment == "before":
                line.add().step()
            if moment == "within":
                # The kernel has found the folder before it was renamed, and links after.
                folder = tmp_path / line.add().name / "ledger"
                source, target = folder / source.name, folder / target.name
            real(source, target)
            if moment == "after":
                line.add().step()
        finally:
            depth -= 1

    monkeypatch.setattr(os, "link", link)
    line.add()
    for _ in range(40):
        alive = [worker for worker in line.workers if not worker.dead]
        if not alive or dice.random() < 0.1:
            line.add()
        else:
            dice.choice(alive).step()
    line.add()
    published = line.output
    assert published, "nothing was ever committed"
    assert sorted(published) == list(range(len(published)))
    assert all(len(by) == 1 for by in published.values()), published
    assert len(line.workers) > 3, "nobody was ever superseded"
