"""ForeachBatchSink: a call that a crash interrupted is repeated, alike; one that returned is not."""

from __future__ import annotations

import json
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.connect.driver_connectors import ForeachBatchSink
from penstock.connect.sink_staging import BatchNumber
from penstock.errors import FolderError, SettingError, UnstorableValueError
from penstock.graph.connector_api import WriteContext
from penstock.record import Record

RECORDS = [Record("a", {"n": (1, 2)}, 0.5), Record(None, b"x", None), Record(2, None, None)]


def stage(sink: ForeachBatchSink, records: list[Record], reject: Any = None) -> Any:
    sink.prepare()
    writer = pickle.loads(pickle.dumps(sink)).writer(WriteContext("job", "out", 0, "task", reject))
    writer.write(records)
    return json.loads(json.dumps(writer.finish()))


def left_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_batch_is_one_call_and_a_crash_repeats_it(tmp_path: Path) -> None:
    calls: list[tuple[int, list[Record]]] = []
    broken = [True]
    lock = threading.Lock()  # which cannot travel, and need not

    def function(batch: int, records: list[Record]) -> None:
        with lock:
            calls.append((batch, records))
        if broken:
            raise OSError("killed")

    sink = ForeachBatchSink(function, folder=tmp_path)
    receipts = [stage(sink, RECORDS), stage(sink, RECORDS[:1])]
    for _ in range(2):
        with pytest.raises(OSError, match="killed"):
            sink.commit(7, receipts)
    broken.clear()
    sink.commit(7, receipts)
    assert calls == [(7, RECORDS + RECORDS[:1])] * 3
    sink.commit(7, receipts)
    assert len(calls) == 3, "it has returned: never again"
    assert [path.suffix for path in left_in(tmp_path)] == [".done"]


def test_a_number_that_comes_again_with_other_records_has_another_id(tmp_path: Path) -> None:
    """As after a start from scratch: who remembers numbers would leave records out."""
    applied: dict[str, list[Any]] = {}

    def save(batch: BatchNumber, records: list[Record]) -> None:
        applied.setdefault(batch.id, [record.value for record in records])
        raise OSError("killed")

    sink = ForeachBatchSink(save, folder=tmp_path)
    for values, task in (([1, 2], "one-run"), ([3], "another-run")):
        writer = sink.writer(WriteContext("my job", "out", 0, task))
        sink.prepare()
        writer.write([Record(None, value) for value in values])
        receipts = [writer.finish()]
        for _ in range(2):
            with pytest.raises(OSError, match="killed"):
                sink.commit(0, receipts)
    assert applied == {"my%20job/out/0/one-run": [1, 2], "my%20job/out/0/another-run": [3]}


def test_a_crash_while_files_are_removed_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    sink = ForeachBatchSink(lambda batch, records: calls.append(batch), folder=tmp_path)
    receipts = [stage(sink, RECORDS), stage(sink, RECORDS)]
    unlink, second = Path.unlink, receipts[1]["files"][0]

    def crash(path: Path, missing_ok: bool = False) -> None:
        if path.name == Path(second).name:
            raise KeyboardInterrupt
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", crash)
        with pytest.raises(KeyboardInterrupt):
            sink.commit(0, receipts)
    sink.commit(0, receipts)
    assert calls == [0]
    assert [path.suffix for path in left_in(tmp_path)] == [".done"]


def test_files_that_are_lost_or_damaged_are_told(tmp_path: Path) -> None:
    sink = ForeachBatchSink(lambda batch, records: None, folder=tmp_path)
    receipts = [stage(sink, RECORDS), stage(sink, RECORDS)]
    path = tmp_path / receipts[1]["files"][0]
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(FolderError, match="is damaged: torn"):
        sink.commit(0, receipts)
    path.unlink()
    with pytest.raises(FolderError, match="restore the file"):
        sink.commit(0, receipts)


def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    got: list[Record] = []
    refused: list[Record] = []
    sink = ForeachBatchSink(lambda batch, records: got.extend(records), folder=tmp_path)
    odd = Record(None, object())
    with pytest.raises(UnstorableValueError):
        stage(sink, [*RECORDS, odd])
    sink.commit(0, [stage(sink, [*RECORDS, odd], reject=lambda record, why: refused.append(record))])
    assert got == RECORDS
    assert len(refused) == 1


def test_the_folder_is_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    stage(ForeachBatchSink(print), RECORDS)
    assert [path.parent for path in left_in(tmp_path)] == [tmp_path / "staged" / "job"]


def test_wrong_options() -> None:
    with pytest.raises(SettingError, match="function takes a function, not 3"):
        ForeachBatchSink(3)  # type: ignore[arg-type]
