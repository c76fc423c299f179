"""The same batch, run twice by Spark in different folders: what follows from chance, and what does not."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from support.running import MASTER

pytestmark = pytest.mark.usefixtures("spark_says")


class Chances(ps.StatefulTask):
    """Draws once by the batch and once by the process."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        chances = [value[2] for value in values if isinstance(value, tuple)]
        drawn = (ps.ctx.now, ps.ctx.batch, ps.ctx.random.random(), chances)
        return (state or 0) + 1, [(key, drawn), (f"{key}-free", random.random())]


def _job() -> ps.Job:
    job = ps.Job("repeated")
    lines = job.source("lines", ps.LogSource("lines"))
    draw = job.task(
        "draw",
        lambda r: [
            (r.value % 7, (ps.ctx.now, ps.ctx.batch, ps.ctx.random.random())),
            ("free", time.time_ns()),
        ],
    )
    chances = job.task("chances", Chances())
    out = job.sink("out", ps.LogSink("out"))
    lines >> draw >> chances >> out
    draw >> out
    return job


def _run_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[Any, list[Any]]:
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    log = ps.Log.create(home / "logs" / "lines", partitions=3)
    log.append([ps.Record(str(number), number) for number in range(300)])
    ps.run(_job(), folder=home / "job", master=MASTER)
    out = ps.Log.open(home / "logs" / "out")
    found: dict[Any, list[Any]] = {}
    for partition in range(out.partitions):
        for chunk in out.read(partition, 0):
            for record in chunk:
                found.setdefault(record.key, []).append(record.value)
    return {key: sorted(values, key=repr) for key, values in found.items()}


def test_a_batch_that_is_run_again_has_the_same_chances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.time()
    first, again = (_run_once(tmp_path / name, monkeypatch) for name in ("first", "again"))
    free = {key for key in first if str(key).endswith("free")}
    drawn = first.keys() - free
    moments = [{value[0] for key in drawn for value in run[key]} for run in (first, again)]

    assert len(drawn) == 7
    assert again.keys() == first.keys()
    # Each run plans its batch for itself, at another moment; the rest follows from the records.
    assert [len(its) for its in moments] == [1, 1]
    assert began <= min(moments[0]) < min(moments[1]) <= time.time()
    assert all([v[1:] for v in first[key]] == [v[1:] for v in again[key]] for key in drawn)
    assert all(first[key] != again[key] for key in free)
