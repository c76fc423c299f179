"""A shared file of state: its sections, and that no damage of it passes for content."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.storage.shared_state_file import SharedFile, SharedFileWriter
from penstock.engine.storage.state_chain import StateFile
from penstock.errors import JobFailedError

OLD = StateFile("000000000001-b.delta", shared=False)
SHARED = StateFile("000000000002-c.sections", shared=True)
SECTIONS = {3: (None, b"base"), 7: (OLD, b"\x00" * 40), 5: (SHARED, b"five"), 9: (SHARED, b"x")}
NAME = "000000000003-a.sections"


def _written(folder: Path, **options: Any) -> Path:
    path = folder / "shared" / NAME
    writer = SharedFileWriter(path, **options)
    for bucket, (parent, data) in SECTIONS.items():
        writer.add(bucket, parent, data)
    assert writer.finish() == path.stat().st_size
    return path


def _read(path: Path) -> dict[int, tuple[StateFile | None, bytes]]:
    with SharedFile(path) as file:
        return {bucket: file.read(bucket) for bucket in file.sections}


def _content(path: Path) -> bytes:
    with SharedFile(path) as file:
        return file.read_whole()


def _opened_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("synced", [False, True])
def test_sections_and_parents_read_back_as_they_were(tmp_path: Path, synced: bool) -> None:
    path = _written(tmp_path, synced=synced)
    assert _read(path) == SECTIONS
    with SharedFile(path) as file:
        assert file.read_whole() == path.read_bytes()
        with pytest.raises(JobFailedError, match="no section of bucket 4"):
            file.read(4)
    assert os.listdir(path.parent) == [NAME]
    assert path.stat().st_mode & 0o077 == 0


def test_every_truncation_and_every_longer_file_is_found(tmp_path: Path) -> None:
    path = _written(tmp_path)
    whole = path.read_bytes()
    opened = _opened_files()
    for longer in (b"\x00", whole):
        path.write_bytes(whole + longer)
        with pytest.raises(JobFailedError, match=f"{NAME} is damaged"):
            SharedFile(path)
    for length in reversed(range(len(whole))):
        os.truncate(path, length)
        with pytest.raises(JobFailedError, match=f"{NAME} is damaged"):
            SharedFile(path)
    assert _opened_files() == opened


def test_every_changed_byte_is_found_by_who_reads_it(tmp_path: Path) -> None:
    path = _written(tmp_path)
    whole = path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        for position, byte in enumerate(whole):
            for changed in (byte ^ 1, byte ^ 0xFF):
                os.pwrite(file.fileno(), bytes([changed]), position)
                with pytest.raises(JobFailedError, match=f"{NAME} is damaged"):
                    _read(path)
                with pytest.raises(JobFailedError, match=f"{NAME} is damaged"):
                    _content(path)
            os.pwrite(file.fileno(), bytes([byte]), position)
    assert _read(path) == SECTIONS


def test_damage_in_one_section_leaves_the_others_readable(tmp_path: Path) -> None:
    path = _written(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"five", b"six!"))
    with SharedFile(path) as file:
        with pytest.raises(JobFailedError, match="section of bucket 5 does not match"):
            file.read(5)
        assert file.read(3) == SECTIONS[3]


def test_a_file_that_is_shortened_while_it_is_open_is_found(tmp_path: Path) -> None:
    path = _written(tmp_path)
    with SharedFile(path) as file:
        os.truncate(path, 50)
        with pytest.raises(JobFailedError, match="it ends at byte 50"):
            file.read(7)


def test_a_read_that_returns_less_than_asked_for_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _written(tmp_path)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, length, offset: pread(file, min(length, 3), offset))
    assert _read(path) == SECTIONS


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match=f"{NAME} is missing"):
        SharedFile(tmp_path / NAME)


def test_without_sections_there_is_no_file(tmp_path: Path) -> None:
    writer = SharedFileWriter(tmp_path / "shared" / NAME)
    assert writer.finish() == 0
    writer.discard()
    assert os.listdir(tmp_path) == []


def test_a_file_has_its_name_when_it_is_complete_and_is_gone_if_it_never_is(tmp_path: Path) -> None:
    path = tmp_path / "shared" / NAME
    writer = SharedFileWriter(path)
    writer.add(0, None, b"data")
    assert os.listdir(path.parent) == [f"{NAME}.new"]
    writer.discard()
    assert os.listdir(path.parent) == []
    complete = _written(tmp_path)
    writer = SharedFileWriter(complete)
    writer.discard()
    assert complete.exists()


@pytest.mark.parametrize("failing", ["open", "rename", "fsync"])
def test_a_disk_that_fails_is_told_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "shared" / NAME
    path.parent.mkdir()
    opened = _opened_files()
    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail)
        patch.setattr(Path, "rename", fail if failing == "rename" else Path.rename)
        writer = SharedFileWriter(path, synced=True)
        with suppress(JobFailedError):
            writer.add(0, None, b"data")
        with pytest.raises(JobFailedError, match=f"{NAME} cannot be written: No space left.*not committed"):
            writer.finish() if failing != "open" else writer.add(0, None, b"data")
        writer.discard()
    assert os.listdir(path.parent) == []
    assert _opened_files() == opened


def test_one_file_and_one_folder_are_synced_however_many_sections_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    (tmp_path / "shared").mkdir()
    monkeypatch.setattr(os, "fsync", noted)
    _written(tmp_path, synced=True)
    assert synced == [f"{NAME}.new", "shared"]
