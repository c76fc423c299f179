"""A bucket's chain of state: deltas, bases, shared files, forgetting, caches that are behind or astray."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.storage import keyed_state as state_module
from penstock.engine.storage import state_chain
from penstock.engine.storage.keyed_state import (
    BucketState,
    StateReader,
    TaskState,
    UnkeepableStateError,
    bucket_folder,
    read_bucket,
    remove_before,
    shared_folder,
)
from penstock.engine.storage.serialization import pack, read_sealed, write_sealed
from penstock.engine.storage.state_chain import StateFile, StateHead, oldest_shared_batch
from penstock.errors import JobFailedError


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "_cache", {})


def _change(state: BucketState, changes: dict[Any, Any]) -> None:
    held = state.states.setdefault("count", {})
    for key, value in changes.items():
        if value is None:
            held.pop(key, None)
        else:
            held[key] = value
    state.changed("count", list(changes))


def _apply(folder: Path, head: StateHead | None, batch: int, changes: dict[Any, Any]) -> StateHead:
    with TaskState(folder, {0: head}, batch, f"a{batch}") as task:
        state = task.bucket(0)
        _change(state, changes)
        task.save(state)
        return task.finish()[0]


def _held(folder: Path, head: StateHead | None, bucket: int = 0) -> Any:
    """Return the state that a task finds, in the cache or on disk."""
    with TaskState(folder, {bucket: head}, 999, "reading") as task:
        return task.bucket(bucket).states


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_first_section_is_a_base_and_later_ones_are_deltas(tmp_path: Path) -> None:
    first = _apply(tmp_path, None, 0, {"a": 1})
    second = _apply(tmp_path, first, 1, {"b": 2})
    assert (first.depth, first.base_batch, first.shared_since) == (0, 0, 0)
    assert (second.depth, second.base_batch, second.shared_since) == (1, 0, 0)
    assert read_bucket(tmp_path, 0, second) == {"count": {"a": 1, "b": 2}}
    assert read_bucket(tmp_path, 0, first) == {"count": {"a": 1}}
    assert _files(tmp_path) == ["shared/000000000000-a0.sections", "shared/000000000001-a1.sections"]


def test_a_task_writes_one_file_for_all_its_buckets(tmp_path: Path) -> None:
    heads: dict[int, StateHead | None] = dict.fromkeys(range(20))
    for batch in range(3):
        with TaskState(tmp_path, heads, batch, "a") as task:
            for bucket in range(batch, 20):
                state = task.bucket(bucket)
                _change(state, {bucket: batch})
                task.save(state)
            heads.update(task.finish())
    assert _files(tmp_path) == [f"shared/{batch:012d}-a.sections" for batch in range(3)]
    with StateReader(tmp_path) as reader:
        for bucket, head in heads.items():
            assert head is not None
            assert 0 < head.shared_bytes < (tmp_path / "shared" / head.file).stat().st_size, "a mean"
            assert reader.read_bucket(bucket, head) == {"count": {bucket: min(bucket, 2)}}


def test_a_large_base_is_a_file_of_its_own(tmp_path: Path) -> None:
    head = _apply(tmp_path, None, 0, {n: n for n in range(20_000)})
    assert head.newest == StateFile("000000000000-a0.base", shared=False)
    assert _files(tmp_path) == ["00000/000000000000-a0.base"]
    head = _apply(tmp_path, head, 1, {5: None})
    assert (head.shared_since, head.least_own_files) == (1, 1)
    assert read_bucket(tmp_path, 0, head) == {"count": {n: n for n in range(20_000) if n != 5}}


def test_an_untouched_bucket_is_rewritten_as_a_file_of_its_own(tmp_path: Path) -> None:
    head = _apply(tmp_path, None, 0, {"a": 1})
    head = _apply(tmp_path, head, 1, {"b": 1})
    with TaskState(tmp_path, {0: head}, 2 * 256 + 1, "again") as task:
        assert task.overdue() == [0]
        task.rewrite(0)
        assert task.overdue() == []
        again = task.finish()[0]
    assert again.newest == StateFile("000000000513-again.base", shared=False)
    remove_before(shared_folder(tmp_path), oldest_shared_batch([again], 513))
    assert _files(tmp_path) == ["00000/000000000513-again.base"]
    assert read_bucket(tmp_path, 0, again) == {"count": {"a": 1, "b": 1}}
    assert _held(tmp_path, again) == {"count": {"a": 1, "b": 1}}
    with TaskState(tmp_path, {0: again}, 5000, "later") as task:
        assert task.overdue() == []


def test_a_state_that_cannot_be_stored_names_its_vertex_at_once(tmp_path: Path) -> None:
    with TaskState(tmp_path, {0: None, 1: None}, 0, "a") as task:
        sound = task.bucket(0)
        _change(sound, {"a": 1})
        task.save(sound)
        broken = task.bucket(1)
        _change(broken, {"a": (n for n in (1,))})
        with pytest.raises(UnkeepableStateError, match="count"):
            task.save(broken)
    assert _files(tmp_path) == []


def test_a_task_that_fails_leaves_no_shared_file_and_no_cache(tmp_path: Path) -> None:
    head = _apply(tmp_path, None, 0, {"a": 1})
    with TaskState(tmp_path, {0: head}, 1, "failed") as task:
        state = task.bucket(0)
        _change(state, {"a": 100})
        task.save(state)
    assert _files(tmp_path) == ["shared/000000000000-a0.sections"]
    assert _held(tmp_path, head) == {"count": {"a": 1}}


def test_a_chain_that_version_0_1_0_has_begun_is_continued(tmp_path: Path) -> None:
    """It has one file for each bucket and batch, each with the name of the one before it."""
    folder = tmp_path / "00000"
    folder.mkdir()
    parent, sizes = None, []
    for batch, kind in enumerate(["base", "delta", "delta"]):
        data = pack((parent, ["count"], [pack((["a", batch], [batch, batch]))]))
        parent = f"{batch:012d}-old.{kind}"
        write_sealed(folder / parent, data)
        sizes.append(len(data))
    assert parent is not None
    head = StateHead(parent, 0, sizes[0], sum(sizes[1:]), 2)
    expected: dict[Any, int] = {"a": 2, 0: 0, 1: 1, 2: 2}
    assert read_bucket(tmp_path, 0, head) == {"count": expected}
    with TaskState(tmp_path, {0: head}, 3000, "a") as task:
        assert task.overdue() == [], "nothing shared is kept for it"
    for batch in range(3, 7):
        head = _apply(tmp_path, head, batch, {batch: batch, 0: None})
        expected = {**expected, batch: batch}
        expected.pop(0, None)
        assert read_bucket(tmp_path, 0, head) == {"count": expected}
    assert (head.base_batch, head.depth, head.shared_since) == (0, 6, 3)
    remove_before(bucket_folder(tmp_path, 0), head.base_batch)
    remove_before(shared_folder(tmp_path), oldest_shared_batch([head], 6))
    assert len(_files(tmp_path)) == 7

    head = _apply(tmp_path, head, 300, {"new": 1})
    assert head.base_batch == 300, "it is too old"
    remove_before(bucket_folder(tmp_path, 0), head.base_batch)
    remove_before(shared_folder(tmp_path), oldest_shared_batch([head], 300))
    assert _files(tmp_path) == [f"shared/{head.file}"]
    assert read_bucket(tmp_path, 0, head) == {"count": {**expected, "new": 1}}


def test_a_reader_keeps_no_more_files_open_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "_OPEN_FILES", 3)
    head = None
    for batch in range(10):
        head = _apply(tmp_path, head, batch, {batch: batch})
    assert head is not None
    before = len(os.listdir("/proc/self/fd"))
    with StateReader(tmp_path) as reader:
        for _ in range(2):
            assert reader.read_bucket(0, head) == {"count": {n: n for n in range(10)}}
            assert len(os.listdir("/proc/self/fd")) == before + 3
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_forgotten_key_is_gone_after_a_restart(tmp_path: Path) -> None:
    head = _apply(tmp_path, None, 0, {"a": 1, "b": 2})
    head = _apply(tmp_path, head, 1, {"a": None})
    assert read_bucket(tmp_path, 0, head) == {"count": {"b": 2}}


def test_nothing_changed_writes_nothing(tmp_path: Path) -> None:
    head = _apply(tmp_path, None, 0, {"a": 1})
    with TaskState(tmp_path, {0: head}, 1, "x") as task:
        task.save(task.bucket(0))
        assert task.finish() == {}
    assert len(_files(tmp_path)) == 1
    (tmp_path / "shared").rename(tmp_path / "away")
    assert _held(tmp_path, head) == {"count": {"a": 1}}, "it is still cached"


def test_deltas_that_outweigh_the_base_become_a_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_chain, "_MIN_BASE_BYTES", 0)
    head = _apply(tmp_path, None, 0, {n: n for n in range(50)})
    kinds = []
    for batch in range(1, 20):
        head = _apply(tmp_path, head, batch, {batch: -batch, "extra": batch})
        kinds.append("delta" if head.depth else "base")
    assert "base" in kinds
    assert kinds.count("delta") > kinds.count("base")
    remove_before(shared_folder(tmp_path), oldest_shared_batch([head], 19))
    assert len(_files(tmp_path)) == head.depth + 1
    expected: dict[Any, int] = {**{n: n for n in range(50)}, **{n: -n for n in range(1, 20)}, "extra": 19}
    assert read_bucket(tmp_path, 0, head) == {"count": expected}


def test_a_cache_that_is_behind_catches_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two worker processes take turns with a bucket, each with a cache of its own."""
    caches: list[dict[Any, Any]] = [{}, {}]
    head: StateHead | None = None
    dice = random.Random(1)
    expected: dict[Any, Any] = {}
    for batch in range(60):
        monkeypatch.setattr(state_module, "_cache", caches[dice.randrange(2)])
        changes = {dice.randrange(30): dice.choice([None, batch]) for _ in range(5)}
        head = _apply(tmp_path, head, batch, changes)
        for key, value in changes.items():
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        monkeypatch.setattr(state_module, "_cache", dict(caches[dice.randrange(2)]))
        assert _held(tmp_path, head)["count"] == expected


def test_a_cache_of_an_attempt_that_was_not_committed_is_not_used(tmp_path: Path) -> None:
    head = _apply(tmp_path, None, 0, {"a": 1})
    _apply(tmp_path, head, 1, {"a": 100, "lost": 1})
    assert _held(tmp_path, head) == {"count": {"a": 1}}


def test_an_attempt_that_fails_midway_leaves_no_cache(tmp_path: Path) -> None:
    head = _apply(tmp_path, None, 0, {"a": 1})
    _held(tmp_path, head)["count"]["a"] = 100
    assert _held(tmp_path, head) == {"count": {"a": 1}}


@pytest.mark.parametrize("keys", [1, 20_000])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_file_is_found(
    tmp_path: Path, damage: str, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = _apply(tmp_path, None, 0, dict.fromkeys(range(keys), 1))
    [path] = (path for path in tmp_path.rglob("*") if path.is_file())
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[:-3])
    else:
        content[-5] ^= 1
        path.write_bytes(content)
    monkeypatch.setattr(state_module, "_cache", {})
    with pytest.raises(JobFailedError, match=head.file):
        _held(tmp_path, head)


def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that is taken while a task writes must find all of a file or nothing."""
    seen: list[list[str]] = []
    fdopen = os.fdopen

    def opened(*arguments: Any) -> Any:
        seen.append(os.listdir(tmp_path))
        return fdopen(*arguments)

    monkeypatch.setattr(os, "fdopen", opened)
    write_sealed(tmp_path / "000000000001-a.delta", b"state")
    assert seen == [["000000000001-a.delta.new"]]
    assert os.listdir(tmp_path) == ["000000000001-a.delta"]
    assert read_sealed(tmp_path / "000000000001-a.delta") == b"state"
