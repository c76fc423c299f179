"""Code on its way to Spark's processes, and what those do before they run it."""

from __future__ import annotations

import gc
import io
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.engine import shipping
from penstock.engine.blueprint import draw
from penstock.engine.shipping import pack_blueprint, program_of


def test_lines_that_user_code_prints_in_a_process_of_spark_are_written_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of Spark's processes share one pipe: no line of one may be within a line of another."""
    job = ps.Job("talking")
    job.source("in", ps.MemorySource([1])) >> job.task("talk", print) >> job.sink("out", ps.MemorySink())
    packed = pack_blueprint(draw(job, folder=tmp_path, buckets=1, sides={}).for_workers())
    monkeypatch.setattr(shipping, "_programs", {})
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, encoding="utf-8"))
    program_of(packed)
    print("first")
    assert pipe.getvalue() == b"first\n"
