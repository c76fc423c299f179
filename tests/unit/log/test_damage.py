"""A torn or altered segment is found out, named, and never read as data."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import LogCorruptionError, LogError
from penstock.log import Log
from penstock.log.segment import HEADER_SIZE
from penstock.record import Record

FIRST = [Record("a", 1, 0.0), Record("b", 2, 1.0)]
SECOND = [Record("c", "x", 2.0), Record("d", {"y": (1, 2)}, 3.0), Record(None, None, 4.0)]
THIRD = [Record("e", 5, 5.0)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    log = Log.create(tmp_path / "orders")
    for records in (FIRST, SECOND, THIRD):
        log.append(records)
    return log.path


def segment(path: Path, position: int) -> Path:
    return path / "p00000" / f"{position:020d}.seg"


def read(path: Path, start: int = 0) -> list[Record]:
    return [record for chunk in Log.open(path).read(0, start) for record in chunk]


def read_until_damage(path: Path) -> tuple[list[Record], LogCorruptionError]:
    got: list[Record] = []

    def collect() -> None:
        for chunk in Log.open(path).read(0, 0):
            got.extend(chunk)

    with pytest.raises(LogCorruptionError) as caught:
        collect()
    return got, caught.value


def test_every_flipped_bit_of_a_header_is_found(path: Path) -> None:
    file = segment(path, 2)
    sound = file.read_bytes()
    for byte in range(HEADER_SIZE):
        for bit in range(8):
            altered = bytearray(sound)
            altered[byte] ^= 1 << bit
            file.write_bytes(altered)
            assert read_until_damage(path)[0] == FIRST, (byte, bit)


def test_a_flipped_bit_in_every_byte_of_a_payload_is_found(path: Path) -> None:
    file = segment(path, 2)
    sound = file.read_bytes()
    for byte in range(HEADER_SIZE, len(sound)):
        altered = bytearray(sound)
        altered[byte] ^= 1 << (byte % 8)
        file.write_bytes(altered)
        got, error = read_until_damage(path)
        assert got == FIRST, byte
        assert error.cause == "the payload's checksum does not match"


def test_every_shorter_file_is_found(path: Path) -> None:
    file = segment(path, 2)
    sound = file.read_bytes()
    for length in range(len(sound)):
        file.write_bytes(sound[:length])
        got, error = read_until_damage(path)
        assert got == FIRST, length
        assert "torn" in error.cause


def test_a_longer_file_is_found(path: Path) -> None:
    with segment(path, 2).open("ab") as file:
        file.write(b"\0")
    assert "too long" in read_until_damage(path)[1].cause


def test_the_error_names_the_place_and_survives_a_process_border(path: Path) -> None:
    segment(path, 2).write_bytes(b"")
    _, error = read_until_damage(path)
    copy = pickle.loads(pickle.dumps(error))
    for one in (error, copy):
        assert (one.log, one.partition, one.position) == ("orders", 0, 2)
        assert one.path == str(segment(path, 2))
        assert one.cause == f"torn: 0 of {HEADER_SIZE} header bytes"


def test_a_missing_segment_is_damage(path: Path) -> None:
    segment(path, 2).unlink()
    got, error = read_until_damage(path)
    assert got == FIRST
    assert (error.position, error.cause) == (2, "the file is missing")


def test_what_comes_after_a_damaged_segment_can_be_read(path: Path) -> None:
    segment(path, 2).write_bytes(b"")
    assert read(path, start=5) == THIRD


def flip(byte: int) -> Callable[[Path], None]:
    def alter(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[byte] ^= 1
        file.write_bytes(content)

    return alter


@pytest.mark.parametrize(
    "alter", [flip(30), lambda file: file.write_bytes(b"x" * 10)], ids=["flipped", "torn"]
)
def test_an_untrusted_last_header_forbids_appending(path: Path, alter: Callable[[Path], None]) -> None:
    alter(segment(path, 5))
    before = sorted(file.name for file in path.rglob("*"))
    log = Log.open(path)
    with pytest.raises(LogCorruptionError, match="position 5"):
        log.append([Record("new", 1)])
    with pytest.raises(LogCorruptionError, match="position 5"):
        log.end(0)
    staged = log.stage(0, [Record("new", 1)])
    with pytest.raises(LogCorruptionError, match="position 5"):
        log.publish([staged], [2])
    log.discard_staged(-1)
    assert sorted(file.name for file in path.rglob("*")) == before
    assert read_until_damage(path)[0] == FIRST + SECOND
    with pytest.raises(LogCorruptionError):
        log.read(0, 6)


def test_a_damaged_payload_does_not_forbid_appending(path: Path) -> None:
    flip(HEADER_SIZE + 3)(segment(path, 5))
    Log.open(path).append([Record("new", 1, 0.0)])
    assert read(path, start=6) == [Record("new", 1, 0.0)]


def test_reading_up_to_the_damage_is_no_error(path: Path) -> None:
    segment(path, 5).write_bytes(b"")
    assert [record for chunk in Log.open(path).read(0, 0, 5) for record in chunk] == FIRST + SECOND


def test_stat_reports_damage_without_raising(path: Path) -> None:
    assert not Log.open(path).stat(verify=True).damaged
    flip(HEADER_SIZE + 3)(segment(path, 2))
    assert not Log.open(path).stat().damaged
    (partition,) = Log.open(path).stat(verify=True).partitions
    assert partition.damaged == [(2, "the payload's checksum does not match")]
    assert (partition.begin, partition.end, partition.records, partition.segments) == (0, 6, 6, 3)


def test_stat_sees_torn_and_missing_segments_without_verify(path: Path) -> None:
    segment(path, 5).write_bytes(b"abc")
    (partition,) = Log.open(path).stat().partitions
    assert partition.damaged == [(5, f"torn: 3 of {HEADER_SIZE} header bytes")]
    assert (partition.end, partition.records) == (5, 5)
    segment(path, 2).unlink()
    assert [position for position, _ in Log.open(path).stat().partitions[0].damaged] == [2, 5]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format":"penstock.log","version":1,"partitions":0}', "\xff"]
)
def test_a_bad_description_is_an_error(path: Path, text: str) -> None:
    (path / "log.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(LogError, match="is not a valid log description"):
        Log.open(path)


def test_a_newer_format_is_an_error(path: Path) -> None:
    (path / "log.json").write_text('{"format":"penstock.log","version":3,"partitions":1}')
    with pytest.raises(LogError, match="format version 3"):
        Log.open(path)
