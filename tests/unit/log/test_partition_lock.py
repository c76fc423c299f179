"""Names are taken away behind the back of nobody."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.errors import LogError, LogNotFoundError
from penstock.log import partition_lock
from penstock.log.partition_lock import PartitionLock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_many_may_share(path: Path) -> None:
    with PartitionLock("x", path).shared() as one, PartitionLock("x", path).shared() as two:
        assert one == two == 0


def test_the_generation_survives_and_takes_no_space(path: Path) -> None:
    for expected in range(5):
        with PartitionLock("x", path).exclusive() as held:
            assert held.generation == expected
            held.advance()
    assert PartitionLock("x", path).generation() == 5
    assert path.stat().st_blocks == 0


def test_who_shares_keeps_the_others_out(path: Path) -> None:
    with (
        PartitionLock("x", path).shared(),
        pytest.raises(LogError, match=r"held .*lock for 0\.01 seconds"),
        PartitionLock("x", path).exclusive(timeout=0.01),
    ):
        pass


def test_who_waits_gets_in(path: Path) -> None:
    entered = threading.Event()

    def enter() -> None:
        with PartitionLock("x", path).exclusive(timeout=20):
            entered.set()

    with PartitionLock("x", path).shared():
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.05)
    assert entered.wait(20)
    thread.join()


def test_a_stopped_process_is_named_after_a_while(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_lock, "_SHARED_TIMEOUT", 0.01)
    with (
        PartitionLock("orders", path).exclusive(),
        pytest.raises(LogError, match=r"log 'orders': another process has held"),
        PartitionLock("orders", path).shared(),
    ):
        pass


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    with (
        pytest.raises(LogNotFoundError, match="was the log deleted"),
        PartitionLock("x", tmp_path / "no" / "lock").shared(),
    ):
        pass
