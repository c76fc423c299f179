"""What user code prints and logs becomes lines with node, job, vertex and level, within bounds."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine.batch_context import ctx
from penstock.process_logs import redaction
from penstock.process_logs.log_reader import read_lines
from penstock.process_logs.output_capture import (
    OutputHandler,
    capture_user_output,
    flush_partial_line,
    stop_user_output_capture,
)
from penstock.process_logs.user_output import FILE, LONGEST, OutputPlace, UserOutput
from penstock.vertex_calls import vertex_call
from support.engines import LOCAL
from support.running import Engine

SECRET = "5ec2e7" * 8


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(redaction, "_secrets", set())
    level = logging.getLogger().level
    yield
    stop_user_output_capture()
    logging.getLogger().setLevel(level)


@pytest.fixture
def place(tmp_path: Path) -> OutputPlace:
    return OutputPlace(str(tmp_path), "n1", "words", "worker")


def lines(place: OutputPlace) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(place.folder) / FILE).read_text().splitlines()]


def test_print_and_logging_are_lines_with_node_job_vertex_and_level(place: OutputPlace) -> None:
    capture_user_output(place, lambda: "split")
    print("seen", 3)
    print("odd", file=sys.stderr)
    logging.getLogger("my.code").error("bad %s", "record")
    stop_user_output_capture()
    first, second, third = lines(place)
    assert first.pop("timestamp").endswith("Z")
    assert first == {
        "level": "info",
        "event": "seen 3",
        "process": "worker",
        "pid": os.getpid(),
        "node": "n1",
        "job": "words",
        "vertex": "split",
        "stream": "stdout",
    }
    assert (second["level"], second["event"], second["stream"]) == ("info", "odd", "stderr")
    assert (third["level"], third["event"], third["logger"]) == ("error", "bad record", "my.code")
    found, _ = read_lines([Path(place.folder) / FILE], "", "words", 10)
    assert [line["event"] for line in found] == ["seen 3", "odd", "bad record"]


def test_output_outside_of_a_vertex_has_none(place: OutputPlace) -> None:
    capture_user_output(place, lambda: None)
    print("at import")
    thread = threading.Thread(target=lambda: print("in a thread"))
    thread.start()
    thread.join()
    with vertex_call("sink"):
        print("written")
    stop_user_output_capture()
    assert [(line["event"], line.get("vertex")) for line in lines(place)] == [
        ("at import", None),
        ("in a thread", None),
        ("written", "sink"),
    ]


def test_what_a_process_of_spark_prints_outside_of_user_code_stays_where_it_was(
    place: OutputPlace, capsys: pytest.CaptureFixture[str]
) -> None:
    vertex: list[str | None] = [None]
    capture_user_output(place, lambda: vertex[0], whole_process=False)
    print("of spark")
    vertex[0] = "split"
    print("of the user")
    stop_user_output_capture()
    assert capsys.readouterr().out == "of spark\n"
    assert [line["event"] for line in lines(place)] == ["of the user"]


def test_each_line_is_a_line_and_begun_ones_are_kept_until_they_end(place: OutputPlace) -> None:
    vertex = ["a"]
    capture_user_output(place, lambda: vertex[0])
    print("one\ntwo\n\n   ")
    print("begun", end="", flush=True)
    print(", ended")
    print("of a", end="")
    vertex[0] = "b"
    print("of b", end="")
    flush_partial_line()
    stop_user_output_capture()
    assert [(line["event"], line["vertex"]) for line in lines(place)] == [
        ("one", "a"),
        ("two", "a"),
        ("begun, ended", "a"),
        ("of a", "a"),
        ("of b", "b"),
    ]


def test_strange_text_is_shown_somehow(place: OutputPlace) -> None:
    capture_user_output(place, lambda: "a")
    sys.stdout.buffer.write(b"\xff\xfe raw\n")
    print("\udc80 lone")
    logging.getLogger("x").warning("two\nlines")
    try:
        raise ValueError("wrong")
    except ValueError:
        logging.getLogger("x").exception("failed")
    stop_user_output_capture()
    found = lines(place)
    assert [line["event"] for line in found] == [
        "\\xff\\xfe raw",
        "\\udc80 lone",
        "two\nlines",
        "failed",
    ]
    assert found[-1]["exception"].endswith("ValueError: wrong")


def test_a_log_record_that_cannot_be_formatted_is_shown_as_it_is(place: OutputPlace) -> None:
    record = logging.LogRecord("x", logging.WARNING, "job.py", 1, "%d", ("no number",), None)
    OutputHandler(UserOutput(place), lambda: "a").handle(record)
    assert [line["event"] for line in lines(place)] == ["'%d' cannot be formatted: TypeError"]


@pytest.mark.parametrize("pieces", [1, 7])
def test_a_long_line_is_cut_with_a_mark(place: OutputPlace, pieces: int) -> None:
    capture_user_output(place, lambda: "a")
    for _ in range(pieces):
        sys.stdout.write("x" * (70_000 // pieces))
    sys.stdout.write("\nnext\n")
    stop_user_output_capture()
    cut, after = lines(place)
    assert cut["event"] == "x" * LONGEST + "… [cut: 70000 characters]"
    assert after["event"] == "next"


def test_secrets_are_left_out_also_where_a_line_is_cut(
    place: OutputPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_SPARK_AUTH_SECRET", "of-spark-itself")
    capture_user_output(place, lambda: "a")
    redaction.register_secret(SECRET)
    print(f"token {SECRET}")
    print(os.environ["_SPARK_AUTH_SECRET"])
    print("y" * (LONGEST - 10) + SECRET)
    logging.getLogger("x").error("token %s", SECRET)
    stop_user_output_capture()
    text = (Path(place.folder) / FILE).read_text()
    assert SECRET[:12] not in text
    assert "of-spark-itself" not in text
    assert text.count(redaction.REDACTED) == 4


def test_too_many_lines_are_dropped_and_counted(tmp_path: Path) -> None:
    moment = [0.0]
    output = UserOutput(
        OutputPlace(str(tmp_path), "n1", "words", "worker", rate=10), clock=lambda: moment[0], now=lambda: 0.0
    )
    written = 0
    for number in range(10_000):
        moment[0] = number / 5_000
        if output.allows():
            output.write("info", str(number), "a")
            written += 1
    output.report_dropped()
    found = lines(OutputPlace(str(tmp_path), "", "", ""))
    told = [line["dropped"] for line in found if "dropped" in line]
    assert written == 50 + 19, "a burst of five seconds, and ten a second after it"
    assert sum(told) == 10_000 - written
    assert len(told) <= 3, "about one report a second"
    assert {line["level"] for line in found if "dropped" in line} == {"warning"}
    assert found[-1]["event"] == f"{told[-1]:,} lines of output dropped"


def test_lines_that_the_disk_did_not_take_are_counted_too(tmp_path: Path) -> None:
    place = OutputPlace(str(tmp_path / "later"), "n1", "words", "worker")
    output = UserOutput(place)
    output.write("info", "lost", "a")
    (tmp_path / "later").mkdir()
    output.report_dropped()
    [line] = lines(place)
    assert (line["event"], line["dropped"]) == ("1 line of output dropped", 1)


def test_the_number_of_dropped_lines_is_told_when_a_task_ends(place: OutputPlace) -> None:
    capture_user_output(OutputPlace(place.folder, "n1", "words", "worker", rate=1), lambda: "a")
    logging.getLogger("x").setLevel(logging.INFO)
    for _ in range(1000):
        logging.getLogger("x").info("again")
    flush_partial_line()
    stop_user_output_capture()
    found = lines(place)
    assert found[-1]["stream"] == "dropped"
    assert sum(line.get("dropped", 1) for line in found) == 1000


def test_libraries_of_penstock_are_not_user_code(place: OutputPlace) -> None:
    capture_user_output(place, lambda: None)
    logging.getLogger("kazoo.client").warning("connection dropped")
    logging.getLogger("penstock.worker.worker_main").warning("refused")
    logging.getLogger("pandas").warning("slow")
    stop_user_output_capture()
    assert [line["event"] for line in lines(place)] == ["slow"]


class Totals(ps.CombiningTask):
    def lift(self, value: Any) -> int:
        return int(value)

    def merge(self, left: int, right: int) -> int:
        print("merges")
        return left + right


def test_every_function_of_a_job_prints_under_the_name_of_its_vertex(
    place: OutputPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))

    def split(record: ps.Record) -> Any:
        print("splits")
        return [(word, 1) for word in record.value.split()]

    job = ps.Job("words")
    source = job.source("lines", ps.MemorySource(["a b a", "b"]))
    out = job.sink("out", ps.ForeachBatchSink(lambda batch, records: print("writes")))
    source >> job.task("split", split) >> job.task("total", Totals()) >> out
    capture_user_output(place, ctx.running_vertex)
    Engine(LOCAL).run(job)
    stop_user_output_capture()
    found = {(line["event"], line.get("vertex")) for line in lines(place)}
    assert found == {("splits", "split"), ("merges", "total"), ("writes", "out")}
