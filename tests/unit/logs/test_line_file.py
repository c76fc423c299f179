"""A file of lines that several processes append to: bounded, and never a part of a line."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from penstock.process_logs.user_output import PARTS, LineFile

SIZE = PARTS * 100


def _lines(folder: Path) -> list[bytes]:
    files = [path for path in folder.iterdir() if not path.name.endswith(".lock")]
    return sorted(line for path in files for line in path.read_bytes().splitlines())


def test_lines_of_two_writers_are_all_there_and_only_the_owner_reads_them(tmp_path: Path) -> None:
    one, other = LineFile(tmp_path / "user.jsonl", SIZE), LineFile(tmp_path / "user.jsonl", SIZE)
    assert one.append(b"a\n")
    assert other.append(b"b\n")
    assert one.append(b"c\n")
    assert (tmp_path / "user.jsonl").read_bytes() == b"a\nb\nc\n"
    assert (tmp_path / "user.jsonl").stat().st_mode & 0o777 == 0o600


def test_all_parts_together_stay_within_the_size_however_much_is_written(tmp_path: Path) -> None:
    writers = [LineFile(tmp_path / "user.jsonl", SIZE) for _ in range(3)]
    for number in range(500):
        assert writers[number % 3].append(b"%08d\n" % number)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= SIZE
    names = sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".lock")
    assert names == ["user.jsonl", *(f"user.jsonl.{number}" for number in range(1, PARTS))]
    kept = _lines(tmp_path)
    assert kept == [b"%08d" % number for number in range(500 - len(kept), 500)], "the newest ones"
    assert len(kept) > 3 * (PARTS - 1) * 3


def test_a_writer_goes_on_in_the_new_file_when_another_has_put_the_old_one_aside(tmp_path: Path) -> None:
    one, other = LineFile(tmp_path / "user.jsonl", SIZE), LineFile(tmp_path / "user.jsonl", SIZE)
    other.append(b"o" * 40 + b"\n")
    one.append(b"1" * 40 + b"\n")
    one.append(b"2" * 60 + b"\n")
    assert other.append(b"p" * 20 + b"\n")
    assert (tmp_path / "user.jsonl").read_bytes() == b"2" * 60 + b"\n" + b"p" * 20 + b"\n"


def test_a_line_that_cannot_be_written_is_lost_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not LineFile(tmp_path / "gone" / "user.jsonl", SIZE).append(b"a\n")
    assert not LineFile(tmp_path / "user.jsonl", SIZE).append(b"a" * 200 + b"\n"), "longer than a part"
    file = LineFile(tmp_path / "user.jsonl", SIZE)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    assert not file.append(b"torn away\n")
    monkeypatch.setattr(os, "write", write)
    assert file.append(b"whole\n")
    assert (tmp_path / "user.jsonl").read_bytes().splitlines() == [b"tor", b"whole"]


def test_nobody_waits_for_a_process_that_stands_still_while_it_puts_the_file_aside(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "user.jsonl", SIZE)
    assert file.append(b"a" * 90 + b"\n")
    with (tmp_path / "user.jsonl.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not file.append(b"b" * 90 + b"\n")
    assert file.append(b"c" * 90 + b"\n")


def test_a_file_that_somebody_has_removed_is_made_anew(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "user.jsonl", SIZE)
    file.append(b"a\n")
    (tmp_path / "user.jsonl").unlink()
    assert file.append(b"b\n")
    assert _lines(tmp_path) == [b"b"]
