"""``penstock log`` as its users meet it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.log import app
from penstock.log import Log, log_folder
from penstock.record import Record

DEADLINE = 60.0


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")


def run(*arguments: str, stdin: str | bytes = "", code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.log", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell starts what runs in the background with Ctrl-C switched off, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def test_create_append_read() -> None:
    assert "created" in run("create", "orders", "--partitions", "1").stderr
    assert run("append", "orders", stdin="one\n\ntwo words").stderr == "appended 3 records\n"
    assert run("append", "orders", stdin="k1\tv1\n", code=0).stderr == "appended 1 record\n"
    assert (
        run("append", "orders", "--key-separator", "\\t", stdin="k\tv\tw\n").stderr == "appended 1 record\n"
    )
    assert run("read", "orders").stdout == "one\n\ntwo words\nk1\tv1\nk\tv\tw\n"
    last = [record for chunk in Log.open(log_folder("orders")).read(0, 4) for record in chunk]
    assert [(record.key, record.value) for record in last] == [("k", "v\tw")]


def test_json_lines_in_and_out() -> None:
    stdin = '{"key": "a", "value": {"n": 1}, "ts": 5}\n{"value": null, "ts": 1.5}\n[1, 2.0]\n"text"\n'
    run("append", "orders", "--json", "--create", stdin=stdin)
    lines = [json.loads(line) for line in run("read", "orders", "-o", "json").stdout.splitlines()]
    assert [(line["partition"], line["position"]) for line in lines] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert [(line["key"], line["value"]) for line in lines] == [
        ("a", {"n": 1}),
        (None, None),
        (None, [1, 2.0]),
        (None, "text"),
    ]
    assert [line["ts"] for line in lines[:2]] == [5.0, 1.5]
    assert abs(lines[2]["ts"] - time.time()) < 600


def test_values_that_json_cannot_say_are_tagged() -> None:
    Log.create(log_folder("orders")).append([Record((1, 2), b"ok"), Record("k", "\ud800")])
    assert run("read", "orders").stdout == '{"$tuple":[1,2]}\t{"$bytes":"b2s="}\nk\t\\ud800\n'
    line = json.loads(run("read", "orders", "-o", "json").stdout.splitlines()[0])
    assert (line["key"], line["value"]) == ({"$tuple": [1, 2]}, {"$bytes": "b2s="})


def test_a_bad_line_stops_before_its_batch() -> None:
    run("create", "orders")
    stdin = "1\n2\n3\n{oops\n5\n"
    result = run("append", "orders", "--json", "--batch", "2", stdin=stdin, code=1)
    assert "error: line 4: not JSON" in result.stderr
    assert "nothing from line 3 on was appended" in result.stderr
    assert "appended 2 records" in result.stderr
    assert run("read", "orders").stdout == "1\n2\n"


@pytest.mark.parametrize(
    ("stdin", "options", "complaint"),
    [
        (b"ok\n\xff\n", [], "line 2: 'utf-8'"),
        (b"a=1\nb\n", ["--key-separator", "="], "line 2: there is no separator '='"),
        (b"[" * 150 + b"]" * 150, ["--json"], "batch that begins with line 1: a log stores values up to 100"),
    ],
)
def test_other_bad_lines(stdin: bytes, options: list[str], complaint: str) -> None:
    run("create", "orders")
    result = run("append", "orders", *options, stdin=stdin, code=1)
    assert complaint in result.stderr
    assert run("read", "orders").stdout == ""


def test_read_can_be_bounded() -> None:
    run("create", "orders", "--partitions", "2")
    log = Log.open(log_folder("orders"))
    log.append([Record(None, number) for number in range(5)], partition=0)
    log.append([Record(None, number) for number in range(10, 15)], partition=1)
    assert run("read", "orders", "--limit", "7").stdout.split() == ["0", "1", "2", "3", "4", "10", "11"]
    assert run("read", "orders", "--partition", "1", "--from", "3").stdout.split() == ["13", "14"]
    assert run("read", "orders", "--partition", "1", "--from", "3", "--limit", "1").stdout.split() == ["13"]
    assert "Invalid value for --from" in run("read", "orders", "--from", "3", code=2).output
    assert "no partition 9" in run("read", "orders", "--partition", "9", code=1).stderr
    assert "no position 99" in run("read", "orders", "--partition", "0", "--from", "99", code=1).stderr


@pytest.mark.parametrize("command", ["read", "append", "stat"])
def test_a_missing_log_says_how_to_make_one(command: str) -> None:
    stderr = run(command, "orders", code=1).stderr
    assert stderr.startswith("error: there is no log 'orders'")
    assert "penstock log create orders" in stderr
    assert stderr.count("\n") == 1


def test_mistakes_of_use() -> None:
    run("create", "orders")
    assert "error: there is already a log at" in run("create", "orders", code=1).stderr
    assert "cannot name a log" in run("create", "../orders", code=1).stderr
    run("append", "orders", "--json", "--key-separator", "=", code=2)
    run("create", "other", "--partitions", "0", code=2)
    run("read", "orders", "-o", "xml", code=2)
    run("read", code=2)


def test_root_is_another_home(tmp_path: Path) -> None:
    run("create", "orders", "--root", str(tmp_path / "there"))
    assert Log.open(tmp_path / "there" / "logs" / "orders").partitions == 1
    run("stat", "orders", code=1)
    run("stat", "orders", "--root", str(tmp_path / "there"))


def test_stat_and_its_exit_code() -> None:
    run("append", "orders", "--create", stdin="a\nb\n")
    found = json.loads(run("stat", "orders", "-o", "json").stdout)
    (partition,) = found["partitions"]
    size = partition.pop("bytes")
    assert found["name"] == "orders"
    assert partition == {"partition": 0, "begin": 0, "end": 2, "records": 2, "segments": 1, "damaged": []}
    assert "segments" in run("stat", "orders", "--verify").stdout
    segment = log_folder("orders") / "p00000" / f"{0:020d}.seg"
    assert size == segment.stat().st_size
    segment.write_bytes(segment.read_bytes()[:-1])
    damaged = run("stat", "orders", code=1).stdout
    assert f"damaged: partition 0, position 0: torn: {size - 1} of {size} bytes" in damaged
    stderr = run("read", "orders", code=1).stderr
    assert stderr.startswith("error: log 'orders', partition 0, position 0: segment")


def test_an_unwritable_folder_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / "logs"))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert run("create", "x", code=1).stderr == f"error: Permission denied: {tmp_path / 'logs'}\n"


def test_a_live_pipe_through_real_processes() -> None:
    run("create", "orders", "--partitions", "2")
    reader = start("read", "orders", "-f", "-o", "json")
    writer = start("append", "orders", "--key-separator", "=")
    try:
        assert reader.stdout is not None
        assert writer.stdin is not None
        for number in range(3):
            writer.stdin.write(f"key-{number}={number}\n".encode())
            writer.stdin.flush()
            # The writer's input is still open: what comes out came out of a pause.
            line = json.loads(reader.stdout.readline())
            assert (line["key"], line["value"]) == (f"key-{number}", str(number))
        writer.stdin.close()
        assert writer.wait(DEADLINE) == 0
        assert writer.stderr is not None
        assert writer.stderr.read() == b"appended 3 records\n"
        reader.send_signal(signal.SIGINT)
        assert reader.wait(DEADLINE) == 130
        assert reader.stderr is not None
        assert reader.stderr.read() == b""
    finally:
        for process in (reader, writer):
            end(process)


def test_a_reader_that_leaves_is_no_error() -> None:
    run("append", "orders", "--create", stdin="".join(f"{number}\n" for number in range(200_000)))
    reader = start("read", "orders")
    try:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert os.read(reader.stdout.fileno(), 2) == b"0\n"
        reader.stdout.close()
        assert reader.wait(DEADLINE) == 0
        assert reader.stderr.read() == b""
    finally:
        end(reader)
