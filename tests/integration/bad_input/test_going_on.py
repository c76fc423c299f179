"""Jobs that cannot go on from where they were: altered files, other logs, other graphs."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import pytest
from bad_rows import Shell, line

from penstock.log import Log, log_folder
from penstock.record import Record

COUNT = 'source >> task >> job.task("count", ps.Count()) >> sink'
KEYED = "lambda r: (r.value % 2, 1)"


def _counting(name: str, **options: str) -> str:
    return line(name, task=KEYED, flow=COUNT, **options)


@pytest.fixture
def ran(jobs: Shell) -> Shell:
    """A shell in which the job ``counting`` has run."""
    jobs.fill("in", [1, 2, 3])
    said = jobs.drain(jobs.write("counting.py", _counting("counting")))
    assert said.code == 0, said.err
    jobs.fill("in", [4, 5])
    return jobs


def _folder(jobs: Shell) -> Path:
    return jobs.home / "jobs" / "counting"


def _goes_on(jobs: Shell) -> None:
    """The job as it was goes on, and each record counts once."""
    said = jobs.drain(str(jobs.home / "counting.py"))
    assert said.code == 0, said.err
    last = {entry["key"]: entry["value"] for entry in jobs.read("out")}
    assert last == {0: 2, 1: 3}


def test_a_job_that_runs_already(ran: Shell) -> None:
    with (_folder(ran) / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        said = ran.drain(str(ran.home / "counting.py"))
    assert said.code == 1
    assert f"error: job 'counting' is running already: another run uses {_folder(ran)}" in said.err
    _goes_on(ran)


def test_an_altered_ledger(ran: Shell) -> None:
    entry = max((_folder(ran) / "ledger").glob("*.json"))
    sound = entry.read_text()
    entry.write_text(sound.replace("buckets", "baskets"))
    said = ran.drain(str(ran.home / "counting.py"))
    assert said.code == 1
    assert f"error: job 'counting': {entry} is damaged: it does not say what batch 0 did" in said.err
    entry.write_text(sound)
    _goes_on(ran)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("altered", "is damaged: the checksum of its index does not match"),
        ("gone", "is missing: the job's folder has been altered"),
    ],
)
def test_state_that_was_altered(ran: Shell, damage: str, says: str) -> None:
    files = sorted((_folder(ran) / "state").rglob("*.sections"))
    sound = {file: file.read_bytes() for file in files}
    assert sound
    for file, data in sound.items():
        file.unlink()
        if damage == "altered":
            file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    # Another number of buckets has to read all of the state, whatever the workers still know of it.
    more = ran.write("more.py", _counting("counting", options="buckets=3"))
    said = ran.drain(more)
    assert said.code == 1
    assert "error: job 'counting': " in said.err
    assert says in said.err
    for file, data in sound.items():
        file.write_bytes(data)
    _goes_on(ran)


def test_a_log_that_was_made_anew(ran: Shell) -> None:
    old = log_folder("in")
    kept = old.rename(ran.home / "old")
    Log.create(old).append([Record(None, n) for n in range(9)])
    said = ran.drain(str(ran.home / "counting.py"))
    assert said.code == 1
    assert (
        "error: log 'in': it was created again after the job had read it: it is not the log that the job has"
        in said.err
    )
    assert "Restore the old one, or start the job from scratch with fresh=True (--fresh)" in said.err
    assert "in job 'counting', vertex 'in'" in said.err
    shutil.rmtree(old)
    kept.rename(old)
    _goes_on(ran)


def test_a_log_that_was_deleted(ran: Shell) -> None:
    old = log_folder("in")
    kept = old.rename(ran.home / "old")
    said = ran.drain(str(ran.home / "counting.py"))
    assert said.code == 1
    assert f"error: there is no log 'in' at {old}: create it with `penstock log create in`" in said.err
    assert "in job 'counting', vertex 'in'" in said.err
    kept.rename(old)
    _goes_on(ran)


def test_a_damaged_segment_in_a_log(ran: Shell) -> None:
    segment = max(log_folder("in").glob("p00000/*.seg"))
    sound = segment.read_bytes()
    segment.unlink()
    segment.write_bytes(sound[:-1])
    said = ran.drain(str(ran.home / "counting.py"))
    assert said.code == 1
    assert f"error: log 'in', partition 0, position 3: segment {segment} is damaged: torn: " in said.err
    assert "in job 'counting', vertex 'in'" in said.err
    segment.write_bytes(sound)
    _goes_on(ran)


CHANGES = {
    "window": (
        "ps.Count()",
        "ps.Count(), window=ps.CountWindow(2)",
        "vertex 'count' had one state for each key and has windows of {'type': 'CountWindow'",
    ),
    "class": ("ps.Count()", "ps.Sum()", "vertex 'count' has the state of Count, which Sum cannot read"),
    "lost-state": (COUNT, "source >> task >> sink", "the state of vertex 'count' would be lost"),
    "other-log": (
        'ps.LogSource("in")',
        'ps.LogSource("other")',
        "source 'in' reads {'log': 'other'} now, but its position belongs to {'log': 'in'}",
    ),
    "renamed-source": (
        'job.source("in"',
        'job.source("new"',
        "source 'in' was removed, and its read position would be lost",
    ),
}


@pytest.mark.parametrize(("old", "new", "says"), CHANGES.values(), ids=CHANGES)
def test_a_change_that_a_job_cannot_go_on_with(ran: Shell, old: str, new: str, says: str) -> None:
    ran.fill("other", [1])
    said = ran.drain(ran.write("changed.py", _counting("counting").replace(old, new)))
    assert said.code == 1
    assert f"error: job 'counting' cannot continue from {_folder(ran)}:\n  - {says}" in said.err
    assert "Undo the change, give the job another name, or start from scratch" in said.err
    _goes_on(ran)
