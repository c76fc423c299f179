"""Lines become batches that neither split a line nor keep a live stream waiting."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connect import line_input


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        try:
            os.close(descriptor)
        except OSError:
            continue


@given(
    st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"")), max_size=30),
    st.integers(1, 7),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_lines_come_back_in_full_batches(
    tmp_path_factory: pytest.TempPathFactory, content: list[bytes], size: int, ended: bool
) -> None:
    file = tmp_path_factory.mktemp("lines") / "input"
    file.write_bytes(b"\n".join(content) + (b"\n" if ended and content else b""))
    expected = content if ended or not content or content[-1] else content[:-1]
    with file.open("rb") as opened:
        got = list(line_input.batches(opened.fileno(), size))
    assert [line for batch in got for line in batch] == expected
    assert all(len(batch) == size for batch in got[:-1])
    assert all(0 < len(batch) <= size for batch in got)


def test_a_pause_flushes_whole_lines_only(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    batches = line_input.batches(reader, 1000)
    os.write(writer, b"one\ntwo\nthr")
    assert next(batches) == [b"one", b"two"]
    os.write(writer, b"ee\n")
    assert next(batches) == [b"three"]
    os.write(writer, b"last")
    os.close(writer)
    assert list(batches) == [[b"last"]]


def test_a_steady_trickle_is_not_held_back_for_ever(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    monkeypatch.setattr(line_input, "_MAX_DELAY", -1.0)
    monkeypatch.setattr(line_input, "_has_input", lambda descriptor: True)
    os.write(writer, b"one\n")
    assert next(line_input.batches(reader, 1000)) == [b"one"]


def test_a_long_line_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"x" * 1_000_000 + b"\ny")
    with file.open("rb") as opened:
        assert [len(line) for batch in line_input.batches(opened.fileno(), 10) for line in batch] == [
            1_000_000,
            1,
        ]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"NaN", "NaN is not JSON"),
        (b'{"key": 1}', "'value' is missing"),
        (b'{"value": 1, "offset": 2}', "unknown field 'offset'"),
        (b'{"value": 1, "key": [1]}', "the key must be"),
        (b'{"value": 1, "ts": "now"}', "ts must be a number"),
        (b'{"value": 1, "ts": true}', "ts must be a number"),
        (b'{"value": 1, "ts": 1' + b"0" * 400 + b"}", "out of range"),
        (b"[" * 100_000, "nested too deep"),
        (b"\xff", "utf-8"),
    ],
)
def test_bad_lines_say_what_is_wrong(line: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        line_input.json_record(line)
