"""At most once, on Spark: a batch that was begun and never ended is given up, whatever Spark knows of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import penstock as ps
from penstock.log import Log, log_folder

MASTER = "local[2]"


@pytest.mark.parametrize("lost", ["nothing", "the plan", "the checkpoint"])
def test_at_most_once_a_batch_that_code_fails_in_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Whatever Spark still knows of the batch: the note of the intent decides."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    log = ps.Log.create(log_folder("in"))
    log.append([ps.Record("k", value) for value in (1, 1, 1, 0, 1, 1)])

    def job(guarantee: str = "at-most-once") -> ps.Job:
        job = ps.Job("given-up", guarantee=guarantee)
        source = job.source("in", ps.LogSource("in", max_records_per_batch=2))
        inverse = job.task("inverse", lambda r: (r.key, 1 // r.value))
        source >> inverse >> job.task("sum", ps.Sum()) >> job.sink("out", ps.LogSink("out"))
        return job

    with pytest.raises(ps.TaskError, match="'inverse'"):
        ps.run(job(), master=MASTER)
    checkpoint = tmp_path / "jobs" / "given-up" / "checkpoint"
    if lost == "the plan":
        (checkpoint / "offsets" / "1").unlink()
    elif lost == "the checkpoint":
        shutil.rmtree(checkpoint)
    # The promise was given when the batch was begun, whatever is promised now.
    report = ps.run(job("exactly-once" if lost == "nothing" else "at-most-once"), master=MASTER)
    assert report.records_in == 2
    assert [record.value for record in _out()] == [2, 4]


def _out() -> list[ps.Record]:
    log = Log.open(log_folder("out"))
    return [
        record for partition in range(log.partitions) for part in log.read(partition, 0) for record in part
    ]
