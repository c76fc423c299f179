"""With ``durability="batch"`` a power cut at any moment loses nothing and doubles nothing."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine.driver.job_start import start_job
from penstock.log import Log, log_folder
from penstock.testing.local_engine import LocalRuntime
from support.power_cuts import Disk
from support.tallying import Route, Tally

NUMBERS = range(24)


def job_of(root: Path, durability: str, sinks: tuple[str, ...], called: list[Any]) -> ps.Job:
    job = ps.Job("powered", durability=durability, parallelism=2, max_iterations=1)
    source = job.source("in", ps.LogSource("in", max_records_per_batch=8))
    tally, route = job.task("tally", Tally()), job.task("route", Route(every=1))
    source >> job.task("by_key", lambda r: (r.value % 3, (r.value, 0))) >> tally >> route
    route["again"] >> tally
    made: dict[str, ps.Sink] = {
        "log": ps.LogSink("out", partitions=2),
        "file": ps.FileSink(root / "elsewhere", "json", key_column="k", sync=True),
        "function": ps.ForeachBatchSink(lambda batch, records: called.append((batch.id, records))),
    }
    for name in sinks:
        route["out"] >> job.sink(name, made[name])
    return job


def run(job: ps.Job) -> None:
    with start_job(job, LocalRuntime) as handle:
        assert handle.wait(timeout=60)


def found_in(root: Path, sink: str) -> Counter[tuple[int, int, int]]:
    if sink == "file":
        lines = [
            line for path in (root / "elsewhere").glob("*.jsonl") for line in path.read_text().splitlines()
        ]
        return Counter((row["k"], *row["value"]) for row in map(json.loads, lines))
    log = Log.open(log_folder("out"))
    records = (r for place in range(log.partitions) for chunk in log.read(place, 0) for r in chunk)
    return Counter((record.key, *record.value) for record in records)


def is_exact(found: Counter[tuple[int, int, int]]) -> bool:
    """Whether each number was visited twice, and visits of each key are numbered without gaps."""
    numbers = Counter(number for _, _, number in found.elements())
    visits = [sorted(visit for key, visit, _ in found.elements() if key == one) for one in range(3)]
    return numbers == dict.fromkeys(NUMBERS, 2) and visits == [list(range(1, 17))] * 3


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "disk" / "home"))
    Log.create(log_folder("in"), partitions=1).append([ps.Record(None, n) for n in NUMBERS])
    disk = Disk(tmp_path / "disk")
    yield disk
    disk.close()


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("sinks", [("log", "file"), ("function",)], ids=" and ".join)
def test_a_power_cut_at_any_moment_loses_and_doubles_nothing(
    disk: Disk, sinks: tuple[str, ...], every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "disk"
    called: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", disk.fsync)
        run(job_of(root, "batch", sinks, called))
    seen = [dict(called[:n]) for n in range(len(called) + 1)]
    assert len(disk.cuts) > 50
    for number, tree in enumerate([*disk.cuts[::every], disk.left()]):
        disk.cut(tree)
        _check_known(root / "home" / "jobs" / "powered", number)
        again: list[Any] = []
        run(job_of(root, "batch", sinks, again))
        for sink in sinks:
            if sink != "function":
                assert is_exact(found_in(root, sink)), f"{sink} after cut {number}"
            else:
                # The function had been called some times before the cut; who goes by the ids has each once.
                assert any(is_exact(_by_id({**before, **dict(again)})) for before in seen), f"cut {number}"


def _check_known(folder: Path, cut: int) -> None:
    """See that of a job which has done anything it is known what it was."""
    if any((folder / "ledger").glob("*.json")):
        assert json.loads((folder / "job.json").read_text())["name"] == "powered", f"after cut {cut}"


def _by_id(called: dict[str, list[ps.Record]]) -> Counter[tuple[int, int, int]]:
    return Counter((record.key, *record.value) for records in called.values() for record in records)


def test_without_it_a_sink_that_is_safer_than_the_job_has_records_twice(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "disk"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", disk.fsync)
        run(job_of(root, "none", ("file",), []))
    disk.cut(disk.left())
    run(job_of(root, "none", ("file",), []))
    assert not is_exact(found_in(root, "file"))
