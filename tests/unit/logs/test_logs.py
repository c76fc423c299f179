"""What a process writes down, and what it must not."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.process_logs import process_log, redaction

SECRET = "5ec2e7" * 8


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(process_log, "_bound", {})
    monkeypatch.setattr(redaction, "_secrets", set())
    root, penstock = logging.getLogger(), logging.getLogger("penstock")
    levels = root.level, penstock.level
    yield
    process_log.configure("none")
    root.setLevel(levels[0])
    penstock.setLevel(levels[1])


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_line_says_when_who_where_and_what(tmp_path: Path) -> None:
    file = tmp_path / "deep/log.jsonl"
    process_log.configure("worker", file=file, node="n1", job="wordcount")
    process_log.bind(epoch=7)
    process_log.get_logger("penstock.test").info("batch done", records=3, took=0.5)
    text = file.read_text()
    (line,) = lines(file)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line.pop("timestamp"))
    assert line == {
        "level": "info",
        "event": "batch done",
        "process": "worker",
        "pid": os.getpid(),
        "node": "n1",
        "job": "wordcount",
        "epoch": 7,
        "records": 3,
        "took": 0.5,
        "logger": "penstock.test",
    }
    assert text.startswith('{"timestamp":')
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_values_given_with_a_line_win_and_none_takes_a_value_back(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    process_log.configure("supervisor", file=file)
    process_log.bind(epoch=7, job="a")
    log = process_log.get_logger("penstock.test").bind(job="b")
    log.info("one")
    process_log.bind(epoch=None)
    log.info("two %s", "words")
    one, two = lines(file)
    assert (one["job"], one["epoch"]) == ("b", 7)
    assert "epoch" not in two
    assert two["event"] == "two words"


def test_libraries_go_the_same_way_from_warnings_on(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    process_log.configure("master", file=file)
    logging.getLogger("kazoo.client").info("chatter")
    logging.getLogger("kazoo.client").warning("connection %s", "dropped")
    try:
        raise OSError("no\nroute")
    except OSError:
        logging.getLogger("somebody.elses").exception("failed")
    process_log.get_logger("penstock.test").debug("not at this level")
    first, second = lines(file)
    assert (first["event"], first["logger"], first["process"]) == (
        "connection dropped",
        "kazoo.client",
        "master",
    )
    assert "OSError: no\nroute" in second["exception"]


def test_exceptions_are_written_as_text(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    process_log.configure("master", file=file)
    try:
        raise ValueError("wrong")
    except ValueError:
        process_log.get_logger("penstock.test").exception("failed")
    (line,) = lines(file)
    assert line["level"] == "error"
    assert line["exception"].endswith("ValueError: wrong")


def test_secrets_are_left_out_wherever_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log.jsonl"

    class Holder:
        def __repr__(self) -> str:
            return f"Holder({SECRET})"

    process_log.configure("master", file=file, stderr=True)
    process_log.register_secret(SECRET)
    try:
        raise ValueError(f"url?x={SECRET}")
    except ValueError:
        process_log.get_logger("penstock.test").exception(
            f"opened with {SECRET}",
            token="abc",
            nodeToken="abc",
            api_key="abc",
            spark_conf={"_SPARK_AUTH_SECRET": "abc", "deep": [{"Authorization": "abc"}]},
            holder=Holder(),
            header="authorization: Bearer abc.def",
            monkey="kept",
            keyboard="kept",
        )
    logging.getLogger("kazoo").warning("auth digest:penstock:%s", SECRET)
    for text in (file.read_text(), capsys.readouterr().err):
        assert SECRET not in text
        assert "abc" not in text
        assert text.count("kept") == 2
        assert text.count(process_log.REDACTED) >= 8
    with pytest.raises(ValueError, match="fewer than 8"):
        process_log.register_secret("a")


def test_values_that_json_does_not_know_and_loops_are_written_somehow(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    process_log.configure("master", file=file)
    loop: dict[Any, Any] = {"path": tmp_path, 1: {2}, "text": "\udc80"}
    loop["loop"] = loop
    process_log.get_logger("penstock.test").info("strange", value=loop)
    (line,) = lines(file)
    assert str(tmp_path) in line["value"]["path"]
    assert line["value"]["1"] == [2]


def test_no_text_makes_a_second_line_or_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    process_log.configure("supervisor", stderr=True, node="n1")
    process_log.get_logger("penstock.test").warning(
        "bad name\nINFO all is well\x1b[2J", name="a\nb\x1b[0m", ok="c d"
    )
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "\x1b" not in said
    assert "warning bad name\\nINFO all is well" in said
    assert 'ok="c d"' in said
    assert "node=n1" in said


def test_full_files_are_put_aside_and_stay_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_log, "LARGEST_FILE", 1000)
    file = tmp_path / "log.jsonl"
    process_log.configure("master", file=file)
    for number in range(100):
        process_log.get_logger("penstock.test").info("line", number=number)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["log.jsonl", *(f"log.jsonl.{number}" for number in range(1, 6))]
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    assert lines(file)[-1]["number"] == 99


def test_configuring_again_replaces_and_nothing_is_said_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process_log.get_logger("penstock.test").info("into the void")
    process_log.configure("one", file=tmp_path / "one")
    process_log.configure("two", file=tmp_path / "two")
    process_log.get_logger("penstock.test").info("hello")
    assert lines(tmp_path / "one") == []
    assert [line["process"] for line in lines(tmp_path / "two")] == ["two"]
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_a_users_own_structlog_is_left_alone() -> None:
    structlog = sys.modules["structlog"]
    process_log.configure("worker")
    assert not structlog.is_configured()
