"""A batch happens once."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.storage.ledger import Intent, Ledger, LedgerEntry
from penstock.engine.storage.state_chain import StateHead
from penstock.errors import JobFailedError

HEAD = StateHead("000000000000-a.base", 0, 10, 0, 0)


def _entry(batch: int, feedback: str = "f") -> LedgerEntry:
    return LedgerEntry(batch, {"batch": batch + 1}, {"out": [{"x": 1}]}, [feedback], {0: HEAD, 3: HEAD}, 4)


def test_an_entry_reads_back_as_it_was(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.latest() is None
    assert ledger.commit(_entry(0))
    assert ledger.read(0) == _entry(0)
    assert ledger.latest() == _entry(0)
    assert ledger.has(0)
    assert not ledger.has(1)
    assert ledger.read(1) is None


def test_the_first_to_commit_a_batch_wins(tmp_path: Path) -> None:
    ledger, other = Ledger(tmp_path), Ledger(tmp_path)
    assert ledger.commit(_entry(7, "first"))
    assert not other.commit(_entry(7, "second"))
    found = other.read(7)
    assert found is not None
    assert found.feedback == ["first"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000000007.json"]


def test_replace_and_trim(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for batch in range(10):
        ledger.commit(_entry(batch))
    ledger.replace(_entry(9, "other"))
    ledger.trim(3)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [f"{batch:012d}.json" for batch in (7, 8, 9)]
    latest = ledger.latest()
    assert latest is not None
    assert latest.feedback == ["other"]


def test_a_damaged_entry_is_found_at_every_byte(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.commit(_entry(0))
    path = tmp_path / "000000000000.json"
    whole = path.read_bytes()
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(JobFailedError):
            ledger.read(0)
    for length in range(0, len(whole), 11):
        path.write_bytes(whole[:length])
        with pytest.raises(JobFailedError):
            ledger.read(0)


def test_an_intent_is_replaced_by_the_next_and_is_no_entry(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.intent() is None
    ledger.intend(Intent(0, {"batch": 1}, 2))
    ledger.intend(Intent(1, {"batch": 2}, 2))
    assert ledger.intent() == Intent(1, {"batch": 2}, 2)
    assert ledger.latest() is None
    [file] = tmp_path.iterdir()
    file.write_text(file.read_text()[:-5])
    with pytest.raises(JobFailedError, match="damaged"):
        ledger.intent()
