"""Over hundreds of small batches, a sink's log stays as many files as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.connect.log_connectors import LogSink, LogSource
from penstock.graph.connector_api import WriteContext
from penstock.log import Log, log_folder, maintenance
from penstock.record import Record

PARTITIONS = 2
BATCHES = 300


@pytest.mark.parametrize("consumed", [True, False])
def test_files_stay_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consumed: bool) -> None:
    monkeypatch.setattr(maintenance, "_MIN_INTERVAL", 0.0)
    monkeypatch.setattr(maintenance, "_MAX_TIME_SHARE", 1e9)
    folder = log_folder("out", tmp_path)
    Log.create(folder, PARTITIONS, retain_consumed=consumed, retain_bytes=None if consumed else 30_000)
    sink = LogSink("out", root=tmp_path)
    sink.prepare()
    source = LogSource("out", root=tmp_path)
    position = source.begin()
    files, sizes, read = [], [], 0
    for batch in range(BATCHES):
        writer = sink.writer(WriteContext("job", "out", batch, "task"))
        writer.write([Record(f"key-{number}", [batch, number]) for number in range(8)])
        sink.commit(batch, [writer.finish()])
        end = source.latest(position)
        for split in source.splits(position, end):
            read += sum(len(chunk) for chunk in source.read(split))
        source.committed(end, "job.out")
        position = end
        found = [path for path in folder.rglob("*") if path.is_file()]
        files.append(len(found))
        sizes.append(sum(path.stat().st_size for path in found))
    assert read == 8 * BATCHES
    later, earlier = slice(BATCHES // 2, None), slice(0, BATCHES // 2)
    assert max(files[later]) <= max(files[earlier]) <= 200
    assert max(sizes[later]) <= 1.2 * max(sizes[earlier])
    log = Log.open(folder)
    assert sum(log.ends()) == 8 * BATCHES
    assert not log.stat(verify=True).damaged
    assert log.begin(0) > 0
