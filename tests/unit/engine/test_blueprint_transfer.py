"""Code on its way to Spark's processes, and what those do before they run it."""

from __future__ import annotations

import gc
import io
import sys
from pathlib import Path
from typing import IO, Any, cast

import pytest

import penstock as ps
from penstock.engine.blueprint import make_blueprint
from penstock.engine.execution import blueprint_transfer
from penstock.engine.execution.blueprint_transfer import load_program, pack_blueprint


class _Pipe(io.RawIOBase):
    """Notes each write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.writes.append(bytes(data))
        return len(data)


def test_lines_that_user_code_prints_in_a_process_of_spark_are_written_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of Spark's processes share one pipe: no line of one may be within a line of another."""
    job = ps.Job("talking")
    job.source("in", ps.MemorySource([1])) >> job.task("talk", print) >> job.sink("out", ps.MemorySink())
    packed = pack_blueprint(make_blueprint(job, folder=tmp_path, buckets=1, sides={}).for_workers())
    monkeypatch.setattr(blueprint_transfer, "_programs", {})
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    pipe = _Pipe()
    # As with PYTHONUNBUFFERED, which Spark sets.
    unbuffered = io.TextIOWrapper(cast("IO[bytes]", pipe), encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, "stdout", unbuffered)
    load_program(packed)
    print("first", 1)
    print("second")
    assert pipe.writes == [b"first 1\n", b"second\n"]
