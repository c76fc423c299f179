"""What comes of a result stream that is cut: at every single byte, nothing short passes for whole."""

from __future__ import annotations

import io
import pickle
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.connect.driver_connectors import MemorySink, MemorySource
from penstock.engine.blueprint import Blueprint, make_blueprint
from penstock.engine.driver.batch_planner import BatchPlanner
from penstock.engine.driver.batch_result import merge_result
from penstock.engine.execution.batch_stages import Row, run_keyed_stage, run_source_stage
from penstock.engine.execution.record_flow import Program
from penstock.errors import IncompleteBatchError
from penstock.graph.vertex import SIDE_STREAMS
from penstock.spark.batch_rows import collect_rows

END = struct.pack("!i", -1)
"""What Java may write behind the last frame."""


class Served:
    """A frame whose rows are served over a stream that breaks off somewhere."""

    def __init__(self, stream: bytes, failure: Exception | None = None) -> None:
        self.stream = stream
        self.failure = failure
        self.asked = 0
        self._jdf = self

    def collectToPython(self) -> tuple[Any, ...]:  # noqa: N802
        return (self, "secret", self)

    def getResult(self) -> None:  # noqa: N802
        self.asked += 1
        if self.failure is not None:
            raise self.failure


@pytest.fixture(autouse=True)
def _serves(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(served: tuple[Any, ...]) -> tuple[io.BytesIO, socket.socket]:
        return io.BytesIO(served[0].stream), socket.socket()

    monkeypatch.setattr("pyspark.util._create_local_socket", connect)


def framed(rows: list[Row], size: int) -> bytes:
    """Return rows as Java sends them: pickled lists, each behind its length."""
    frames = [pickle.dumps(rows[start : start + size]) for start in range(0, len(rows), size)]
    return b"".join(struct.pack("!i", len(frame)) + frame for frame in frames)


def batch_of(folder: Path, *, keyed: bool, text: int) -> tuple[Blueprint, list[Row]]:
    """Run a batch whose result has about ``text`` bytes of records in it."""
    job = ps.Job("cut")
    source = job.source("in", MemorySource([(n, "x" * (text // 8)) for n in range(8)], partitions=4))
    onward = source >> job.task("last", ps.Reduce(lambda a, b: b)) if keyed else source
    onward >> job.sink("out", MemorySink())
    blueprint = make_blueprint(job, folder=folder, buckets=3, sides={s: MemorySink() for s in SIDE_STREAMS})
    blueprint.folders.create()
    program, planner = Program(blueprint), BatchPlanner(blueprint)
    start = planner.begin()
    rows = [
        row for part in planner.parts(start, planner.latest(start)) for row in run_source_stage(program, part)
    ]
    if keyed:
        dealt = [[row for row in rows if row[0] == bucket] for bucket in range(3)]
        rows = [row for given in dealt for row in run_keyed_stage(program, given)]
    return blueprint, rows


def cuts(stream: bytes) -> Iterator[int]:
    """Every position of a short stream; of a long one all around frames, and many within."""
    step = max(1, len(stream) // 3000)
    return iter(sorted({*range(0, len(stream), step), *range(max(0, len(stream) - 64), len(stream))}))


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("text", [80, 20_000])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_cut_result_is_never_taken_for_whole(tmp_path: Path, keyed: bool, text: int, size: int) -> None:
    blueprint, rows = batch_of(tmp_path, keyed=keyed, text=text)
    stream = framed(rows, size)
    assert text == 80 or len(stream) > 8192
    for ending in (b"", END):
        served = Served(stream + ending)
        whole = merge_result(blueprint, 0, collect_rows(served, "cut", 0))
        assert whole.records_out[0] == 8
        assert served.asked == 1
    for cut in cuts(stream):
        with pytest.raises(IncompleteBatchError):
            merge_result(blueprint, 0, collect_rows(Served(stream[:cut]), "cut", 0))


def test_a_thread_of_java_that_failed_makes_the_result_incomplete(tmp_path: Path) -> None:
    _, rows = batch_of(tmp_path, keyed=False, text=80)
    served = Served(framed(rows, 1), failure=RuntimeError("the sender failed"))
    with pytest.raises(
        IncompleteBatchError, match="Java could not send the result: RuntimeError: the sender"
    ):
        collect_rows(served, "cut", 0)


def test_a_java_that_is_gone_is_told_from_one_that_failed(tmp_path: Path) -> None:
    from py4j.protocol import Py4JNetworkError

    _, rows = batch_of(tmp_path, keyed=False, text=80)
    for lost in (Py4JNetworkError("gone"), ConnectionRefusedError("gone")):
        with pytest.raises(type(lost)):
            collect_rows(Served(framed(rows, 1), failure=lost), "cut", 0)
