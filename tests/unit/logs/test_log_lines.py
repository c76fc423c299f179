"""Reading logs bit by bit, while they grow and move."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.process_logs import log_reader
from penstock.process_logs.log_reader import CursorError, read_lines


def line(moment: int, job: str = "a", **more: object) -> str:
    return json.dumps({"timestamp": f"2026-01-01T00:00:{moment:02}.000000Z", "job": job, **more}) + "\n"


def moments(found: list[dict[str, object]]) -> list[int]:
    return [int(str(each["timestamp"])[17:19]) for each in found]


def test_lines_of_several_files_come_in_the_order_of_time(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text(line(1) + line(3) + line(4, "b") + line(6))
    two.write_text(line(2) + line(5) + line(7, "ab"))
    found, cursor = read_lines([one, two], "", "a", 100)
    assert moments(found) == [1, 2, 3, 5, 6]
    assert read_lines([one, two], cursor, "a", 100) == ([], cursor)
    assert moments(read_lines([one, two], "", "", 100)[0]) == [1, 2, 3, 4, 5, 6, 7]


def test_lines_of_a_jobs_replicas_are_its_own(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(line(1) + line(2, "a~1") + line(3, "ab~1") + line(4, "a~12") + line(5, "b", event="a~1"))
    assert moments(read_lines([file], "", "a", 100)[0]) == [1, 2, 4]


def test_reading_bit_by_bit_gives_each_line_once(tmp_path: Path) -> None:
    files = [tmp_path / str(number) for number in range(3)]
    for number, file in enumerate(files):
        file.write_text("".join(line(moment, "ab"[moment % 2]) for moment in range(number, 60, 3)))
    seen: list[int] = []
    cursor = ""
    while True:
        found, cursor = read_lines(files, cursor, "a", 4)
        if not found:
            break
        assert len(found) <= 4
        seen += moments(found)
    assert seen == list(range(0, 60, 2))


def test_half_a_line_waits_until_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "log"
    whole = line(2)
    file.write_text(line(1) + whole[:10])
    found, cursor = read_lines([file], "", "a", 10)
    assert moments(found) == [1]
    with file.open("a") as more:
        more.write(whole[10:] + line(3))
    assert moments(read_lines([file], cursor, "a", 10)[0]) == [2, 3]


def test_files_put_aside_are_read_on_and_nothing_comes_twice(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(line(1) + line(2))
    _, cursor = read_lines([file], "", "a", 1)
    file.rename(tmp_path / "log.1")
    file.write_text(line(3))
    found, cursor = read_lines([file], cursor, "a", 10)
    assert moments(found) == [2, 3]
    (tmp_path / "log.1").rename(tmp_path / "log.2")
    file.rename(tmp_path / "log.1")
    found, cursor = read_lines([file], cursor, "a", 10)
    assert found == []
    # Caught in the middle of the move, a file is not there for a moment.
    (tmp_path / "log.1").rename(tmp_path / "elsewhere")
    found, cursor = read_lines([file], cursor, "a", 10)
    (tmp_path / "elsewhere").rename(tmp_path / "log.1")
    file.write_text(line(4))
    assert moments(read_lines([file], cursor, "a", 10)[0]) == [4]


def test_what_is_no_line_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "log"
    nested = '{"job":"a","x":' + "[" * 90_000 + "\n"
    file.write_text(
        line(1) + 'not "a"\n"a"\n{"job":"a"}\n\n' + nested + line(2, job="x", other="a") + line(3)
    )
    assert moments(read_lines([file, tmp_path / "gone"], "", "a", 10)[0]) == [1, 3]
    monkeypatch.setattr(log_reader, "LONGEST_LINE", 100)
    file.write_text(line(1) + line(2, text="x" * 1000) + line(3) + line(4, text="x" * 500)[:-1])
    found, cursor = read_lines([file], "", "a", 10)
    assert moments(found) == [1, 3]
    with file.open("a") as more:
        more.write("xxx}\n" + line(5))
    assert moments(read_lines([file], cursor, "a", 10)[0]) == [5]


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "../../etc/passwd",
        "a" * 100_000,
        "AAAA",
        "A" * 15 + "=",
        "A" * 17,
        "A" * 16 + "\n",
        "é",
    ],
)
def test_cursors_that_nobody_gave_out_are_refused(tmp_path: Path, cursor: str) -> None:
    with pytest.raises(CursorError):
        read_lines([tmp_path / "log"], cursor, "a", 10)


def test_a_cursor_into_the_middle_or_behind_the_end_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(line(1) + line(2, text='\n{"job":"a"}'))
    _, cursor = read_lines([file], "", "a", 10)
    assert len(cursor) == 16
    identity = base64.urlsafe_b64decode(cursor)[:6]
    for position in (5, 10_000, 2**48 - 1):
        altered = base64.urlsafe_b64encode(identity + position.to_bytes(6)).decode()
        with pytest.raises(CursorError, match="does not match"):
            read_lines([file], altered, "a", 10)


def test_files_about_other_jobs_hardly_lengthen_a_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "_MOST_UNUSED", 2)
    files = [tmp_path / str(number) for number in range(20)]
    for number, file in enumerate(files):
        file.write_text(line(number, job="a" if number in (3, 7) else "b", number=number))
    found, cursor = read_lines(files, "", "a", 10)
    assert moments(found) == [3, 7]
    assert len(cursor) == 16 * 4
    for number, file in enumerate(files):
        with file.open("a") as more:
            more.write(line(20 + number, job="b" if number == 3 else "a"))
    found, cursor = read_lines(files, cursor, "a", 100)
    assert moments(found) == [20 + number for number in range(20) if number != 3]
    assert read_lines(files, cursor, "a", 100) == ([], cursor)
    assert len(cursor) == 16 * 20


def test_an_answer_holds_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "log"
    file.write_text("".join(line(moment) for moment in range(10)))
    monkeypatch.setattr(log_reader, "MOST_BYTES", 2 * len(line(1)) + 1)
    found, cursor = read_lines([file], "", "a", 10)
    assert moments(found) == [0, 1, 2]
    assert moments(read_lines([file], cursor, "a", 10)[0]) == [3, 4, 5]


@given(st.text(max_size=100))
def test_any_text_is_a_cursor_or_refused(cursor: str) -> None:
    try:
        found, _ = read_lines([], cursor, "a", 10)
    except CursorError:
        return
    assert found == []


def test_only_the_newest_files_are_read_when_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "MOST_FILES", 2)
    files = [tmp_path / str(number) for number in range(4)]
    for number, file in enumerate(files):
        file.write_text(line(number))
        os.utime(file, (number, number))
    found, cursor = read_lines(files, "", "a", 10)
    assert moments(found) == [2, 3]
    assert read_lines(files, cursor, "a", 10)[0] == []
