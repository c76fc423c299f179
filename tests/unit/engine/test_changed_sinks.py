"""A job whose last output may not be out yet cannot go on with other sinks; one that was stopped can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine.driver import batch_committer
from penstock.engine.driver.job_start import start_job
from penstock.errors import IncompatibleJobError, JobFailedError
from penstock.graph.job_compatibility import other_sinks
from penstock.log import Log, log_folder
from penstock.testing.local_engine import LocalRuntime


def job_with(name: str, sink: ps.Sink) -> ps.Job:
    job = ps.Job("changing")
    job.source("in", ps.LogSource("in")) >> job.sink(name, sink)
    return job


def run(job: ps.Job) -> None:
    with start_job(job, LocalRuntime) as handle:
        handle.wait(timeout=60)


def die(*_: object) -> None:
    raise InterruptedError("killed")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    Log.create(log_folder("in"), partitions=1).append([ps.Record("k", n) for n in range(5)])
    return tmp_path


CHANGES: dict[str, tuple[Any, str]] = {
    "gone": (lambda home: job_with("elsewhere", ps.LogSink("out")), "sink 'out' was removed"),
    "kind": (lambda home: job_with("out", ps.MemorySink()), "was a LogSink and is a MemorySink"),
    "place": (lambda home: job_with("out", ps.LogSink("other")), "had log='out' and has log='other'"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_sinks_change_when_all_is_out(change: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed, reason = CHANGES[change]
    with monkeypatch.context() as patched:
        patched.setattr(batch_committer, "publish", die)
        with pytest.raises(JobFailedError, match="killed"):
            run(job_with("out", ps.LogSink("out")))
    for _ in range(2):
        with pytest.raises(IncompatibleJobError, match=reason) as told:
            run(changed(home))
    assert "Start the unchanged job, stop it, then change it" in str(told.value)
    run(job_with("out", ps.LogSink("out")))
    output = Log.open(log_folder("out"))
    places = range(output.partitions)
    records = [record for place in places for chunk in output.read(place, 0) for record in chunk]
    assert [record.value for record in records] == list(range(5))
    run(changed(home))


def test_a_service_may_have_moved() -> None:
    then, now = (job_with("out", ps.HttpSink(f"http://127.0.0.1:1/{place}")) for place in ("old", "new"))
    assert other_sinks(then.to_dict(), now.to_dict()) == {}
