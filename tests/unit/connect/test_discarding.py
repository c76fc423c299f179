"""What a sink has staged and nobody will commit can be removed; and two that hand over at once do it once."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.connect.driver_connectors import ConsoleSink, ForeachBatchSink, MemorySink
from penstock.connect.file_sink import FileSink
from penstock.connect.http_sink import HttpSink
from penstock.connect.log_connectors import LogSink
from penstock.connect.sink_staging import DONE, Staging, StagingWriter
from penstock.graph.connector_api import Receipt, Sink, WriteContext
from penstock.record import Record

SINKS: dict[str, Callable[[Path], Sink]] = {
    "log": lambda folder: LogSink("out", root=folder, partitions=2),
    "file": lambda folder: FileSink(folder, "json"),
    "function": lambda folder: ForeachBatchSink(print, folder=folder),
    "http": lambda folder: HttpSink("http://127.0.0.1:1/", folder=folder),
    "memory": lambda folder: MemorySink(),
    "console": lambda folder: ConsoleSink(),
}


def stage(sink: Sink, batch: int) -> Receipt:
    writer = sink.writer(WriteContext("job", "out", batch, f"task-{batch}"))
    writer.write([Record(str(n), n, 1.0) for n in range(10)])
    return writer.finish()


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", SINKS)
def test_what_was_staged_is_removed_and_nothing_else(kind: str, tmp_path: Path) -> None:
    sink = SINKS[kind](tmp_path)
    sink.prepare()
    kept = stage(sink, 0)
    before = files(tmp_path)
    unwanted = stage(sink, 1)
    if sink.transactional:
        assert files(tmp_path) > before, "nothing was staged"
        unwanted = json.loads(json.dumps(unwanted))
    for _ in range(2):
        sink.discard([unwanted])
        assert files(tmp_path) == before
    if kind in ("log", "file"):
        sink.commit(0, [kept])
        sink.discard([unwanted])
        sink.discard([kept])
    if isinstance(sink, LogSink):
        assert sum(sink.log.ends()) == 10, "what is published stays"
    if isinstance(sink, FileSink):
        assert len(list(tmp_path.glob("part-*"))) == 1


def test_which_sinks_any_replica_can_finish() -> None:
    shared = {kind for kind, sink in SINKS.items() if sink(Path()).shared}
    assert shared == {"log", "file"}


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    staging = Staging("Sink", tmp_path)
    staging.prepare()
    return staging


def staged(staging: Staging) -> list[Receipt]:
    receipts = []
    for task in ("a", "b"):
        writer = StagingWriter(staging.folder, WriteContext("job", "out", 3, task))
        writer.write([Record(None, f"{task}{n}") for n in range(3)])
        receipts.append(writer.finish())
    return receipts


def test_two_at_once_hand_a_batch_over_once(staging: Staging) -> None:
    receipts = staged(staging)
    got: list[list[Record]] = []
    inside, go_on = threading.Event(), threading.Event()

    def slowly(records: Iterator[Record]) -> None:
        got.append(list(records))
        inside.set()
        assert go_on.wait(30)

    first = threading.Thread(target=staging.deliver_once, args=(receipts, slowly))
    first.start()
    assert inside.wait(30)
    second = threading.Thread(target=Staging("Sink", staging.folder).deliver_once, args=(receipts, slowly))
    second.start()
    go_on.set()
    first.join(30)
    second.join(30)
    assert [[record.value for record in records] for records in got] == [["a0", "a1", "a2", "b0", "b1", "b2"]]
    assert files(staging.folder) == {staging.sibling(receipts, DONE)}


def test_nobody_waits_for_ever_for_one_that_is_stopped(staging: Staging) -> None:
    receipts = staged(staging)
    descriptor = os.open(staging.paths(receipts)[0], os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        got: list[Record] = []
        staging.deliver_once(receipts, got.extend, timeout=0.02)
    finally:
        os.close(descriptor)
    assert len(got) == 6
    assert files(staging.folder) == {staging.sibling(receipts, DONE)}


def test_a_batch_that_another_takes_meanwhile_is_no_error(staging: Staging) -> None:
    receipts = staged(staging)
    got: list[str] = []

    def interrupted(records: Iterator[Record]) -> None:
        # The other process was only stopped, and goes on between two files.
        for record in records:
            got.append(record.value)
            if record.value == "a2":
                staging.sibling(receipts, DONE).touch()
                staging.discard(receipts)

    descriptor = os.open(staging.paths(receipts)[0], os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        staging.deliver_once(receipts, interrupted, timeout=0.0)
    finally:
        os.close(descriptor)
    assert got == ["a0", "a1", "a2"]
    assert files(staging.folder) == {staging.sibling(receipts, DONE)}
