"""A bucket's chain of state files: deltas, bases, forgetting, caches that are behind or astray."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.storage import keyed_state as state_module
from penstock.engine.storage.keyed_state import BucketState, StateHead, read_bucket, remove_before
from penstock.engine.storage.serialization import read_sealed, write_sealed
from penstock.errors import JobFailedError


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "_cache", {})


def _apply(folder: Path, head: StateHead | None, batch: int, changes: dict[Any, Any]) -> StateHead:
    bucket = BucketState(folder, 0, head)
    held = bucket.states.setdefault("count", {})
    for key, value in changes.items():
        if value is None:
            held.pop(key, None)
        else:
            held[key] = value
    bucket.changed("count", list(changes))
    saved = bucket.save(batch, f"a{batch}")
    assert saved is not None
    return saved


def test_first_file_is_a_base_and_later_ones_are_deltas(tmp_path: Path) -> None:
    first = _apply(tmp_path, None, 0, {"a": 1})
    second = _apply(tmp_path, first, 1, {"b": 2})
    assert first.file.endswith(".base")
    assert second.file.endswith(".delta")
    assert second.depth == 1
    assert read_bucket(tmp_path, 0, second) == {"count": {"a": 1, "b": 2}}
    assert read_bucket(tmp_path, 0, first) == {"count": {"a": 1}}


def test_a_forgotten_key_is_gone_after_a_restart(tmp_path: Path) -> None:
    head = _apply(tmp_path, None, 0, {"a": 1, "b": 2})
    head = _apply(tmp_path, head, 1, {"a": None})
    assert read_bucket(tmp_path, 0, head) == {"count": {"b": 2}}


def test_nothing_changed_writes_nothing(tmp_path: Path) -> None:
    head = _apply(tmp_path, None, 0, {"a": 1})
    bucket = BucketState(tmp_path, 0, head)
    assert bucket.save(1, "x") is None
    assert len(list((tmp_path / "00000").iterdir())) == 1


def test_deltas_that_outweigh_the_base_become_a_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "_MIN_BASE_BYTES", 0)
    head = _apply(tmp_path, None, 0, {n: n for n in range(50)})
    kinds = []
    for batch in range(1, 20):
        head = _apply(tmp_path, head, batch, {batch: -batch, "extra": batch})
        kinds.append(head.file.rpartition(".")[2])
    assert "base" in kinds
    assert kinds.count("delta") > kinds.count("base")
    remove_before(tmp_path, 0, head.base_batch)
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
        assert BucketState(tmp_path, 0, head).states["count"] == expected


def test_a_cache_of_an_attempt_that_was_not_committed_is_not_used(tmp_path: Path) -> None:
    head = _apply(tmp_path, None, 0, {"a": 1})
    _apply(tmp_path, head, 1, {"a": 100, "lost": 1})
    again = BucketState(tmp_path, 0, head)
    assert again.states == {"count": {"a": 1}}


def test_an_attempt_that_fails_midway_leaves_no_cache(tmp_path: Path) -> None:
    head = _apply(tmp_path, None, 0, {"a": 1})
    broken = BucketState(tmp_path, 0, head)
    broken.states["count"]["a"] = 100
    del broken
    assert BucketState(tmp_path, 0, head).states == {"count": {"a": 1}}


@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_file_is_found(tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head = _apply(tmp_path, None, 0, {"a": 1})
    path = tmp_path / "00000" / head.file
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
        BucketState(tmp_path, 0, head)


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
