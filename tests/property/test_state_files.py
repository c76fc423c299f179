"""Keyed state in files: whichever tasks run the buckets, and whatever fails, it is what a dict would hold."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.storage import keyed_state, state_chain
from penstock.engine.storage.keyed_state import (
    StateReader,
    TaskState,
    bucket_folder,
    remove_before,
    shared_folder,
)
from penstock.engine.storage.state_chain import StateHead, oldest_shared_batch

REACH = 8


@contextmanager
def small_limits(own_file_bytes: int = 300) -> Iterator[pytest.MonkeyPatch]:
    """Let all happen within few batches, and few keys be a large base."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_chain, "_MAX_DELTAS", 6)
        patch.setattr(state_chain, "_MIN_REACH", REACH)
        patch.setattr(state_chain, "_MAX_REACH", 2 * REACH)
        patch.setattr(state_chain, "_LEAST_REACH", 2)
        patch.setattr(keyed_state, "_OWN_FILE_BYTES", own_file_bytes)
        patch.setattr(keyed_state, "_OPEN_FILES", 3)
        patch.setattr(keyed_state, "_cache", {})
        yield patch


class Run:
    """Batches of a job with some buckets, and what they should come to."""

    def __init__(self, folder: Path, buckets: int, dice: Random) -> None:
        self._folder = folder
        self._buckets = buckets
        self._dice = dice
        self.batch = 0
        self.heads: dict[int, StateHead] = {}
        self.model: dict[int, dict[Any, Any]] = {}

    def run(self, changes: dict[int, dict[Any, Any]], tasks: int, attempt: str = "good") -> None:
        """Run a batch with the given changes, its buckets dealt out at random, and commit it."""
        before = dict(self.heads)
        place = {bucket: self._dice.randrange(tasks) for bucket in range(self._buckets)}
        for task in range(tasks):
            mine = [bucket for bucket, of in place.items() if of == task]
            heads = self._run_task(mine, changes, f"{attempt}-{task}")
            assert heads.keys() <= set(mine)
            self.heads.update(heads)
        for bucket, changed in changes.items():
            held = self.model.setdefault(bucket, {})
            held.update(changed)
            self.model[bucket] = {key: value for key, value in held.items() if value is not None}
        self._remove_obsolete_files(before)
        self.batch += 1

    def fail(self, changes: dict[int, dict[Any, Any]], *, midway: bool) -> None:
        """Run a task that fails before it has written its file, or whose result nobody gets."""
        mine = self._dice.sample(range(self._buckets), self._dice.randint(1, self._buckets))
        self._run_task(mine, changes, f"failed-{self._dice.random()}", midway=midway)

    def _run_task(
        self, mine: list[int], changes: dict[int, dict[Any, Any]], attempt: str, *, midway: bool = False
    ) -> dict[int, StateHead]:
        with TaskState(self._folder, {b: self.heads.get(b) for b in mine}, self.batch, attempt) as task:
            for bucket in sorted(set(mine) & changes.keys()):
                state = task.bucket(bucket)
                assert state.states.get("count", {}) == self.model.get(bucket, {})
                held = state.states.setdefault("count", {})
                held.update(changes[bucket])
                for key, value in changes[bucket].items():
                    if value is None:
                        del held[key]
                state.changed("count", list(changes[bucket]))
                task.save(state)
            for bucket in task.overdue():
                assert bucket not in changes
                task.rewrite(bucket)
            return {} if midway else task.finish()

    def _remove_obsolete_files(self, before: dict[int, StateHead]) -> None:
        for bucket, head in self.heads.items():
            if bucket in before and before[bucket].base_batch != head.base_batch:
                remove_before(bucket_folder(self._folder, bucket), head.base_batch)
        remove_before(shared_folder(self._folder), oldest_shared_batch(self.heads.values(), self.batch))

    def check_disk(self) -> None:
        """See that every bucket can be read from disk, and has what it should."""
        with StateReader(self._folder) as reader:
            for bucket, head in self.heads.items():
                assert reader.read_bucket(bucket, head).get("count", {}) == self.model[bucket]
                assert head.depth <= 6
        assert self.heads.keys() == self.model.keys()

    @property
    def files(self) -> dict[str, int]:
        """How many files there are, in the shared folder and in others."""
        found = {"shared": 0, "own": 0}
        for folder, _, names in os.walk(self._folder):
            found["shared" if folder.endswith("shared") else "own"] += len(names)
        return found


def _changes(dice: Random, buckets: list[int]) -> dict[int, dict[Any, Any]]:
    return {
        bucket: {dice.randrange(12): dice.choice([None, dice.random()]) for _ in range(dice.randint(1, 4))}
        for bucket in buckets
    }


@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from([0, 150, 300, 1 << 16]))
def test_state_is_that_of_a_dict_whoever_runs_the_buckets(seed: int, buckets: int, own: int) -> None:
    dice = Random(seed)
    with tempfile.TemporaryDirectory() as folder, small_limits(own) as patch:
        run = Run(Path(folder), buckets, dice)
        caches: list[dict[Any, Any]] = [{}, {}]
        for _ in range(25):
            changes = _changes(dice, dice.sample(range(buckets), dice.randint(0, buckets)))
            # Another worker process may run the batch, or one that has just begun.
            patch.setattr(keyed_state, "_cache", dice.choice([*caches, {}]))
            # An attempt that fails has changed the same buckets, and need not have computed the same.
            for midway in dice.choice([[], [], [True], [False], [False, True]]):
                run.fail(dice.choice([changes, _changes(dice, list(changes))]), midway=midway)
            patch.setattr(keyed_state, "_cache", dice.choice(caches))
            run.run(changes, tasks=dice.randint(1, 3))
            if dice.random() < 0.3:
                run.check_disk()
        run.check_disk()


def test_files_stay_few_and_none_is_missed_over_thousands_of_batches(tmp_path: Path) -> None:
    """Some buckets change with every batch, some now and then, and some never again."""
    dice = Random(1)
    hot, rare, cold, tasks = [0, 1], [2, 3, 4], [5, 6, 7], 2
    most = {"shared": 0, "own": 0}
    with small_limits():
        run = Run(tmp_path, 8, dice)
        run.run(_changes(dice, [*hot, *rare, *cold]), tasks)
        for _ in range(2000):
            run.run(_changes(dice, hot + [b for b in rare if dice.random() < 0.03]), tasks)
            run.check_disk()
            most = {kind: max(count, run.files[kind]) for kind, count in most.items()}
    # Reached back to at most twice the limit, and a few batches until all that are due have had their turn.
    assert REACH * tasks < most["shared"] <= (2 * 2 * REACH + 8) * tasks
    assert most["own"] <= 8
    assert run.batch == 2001
