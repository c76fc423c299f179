"""Mistakes that are told before Spark starts, by ``penstock run`` and by ``ps.run``."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from bad_rows import Row, Shell, line, rows

import penstock as ps
from penstock.graph.job_loader import load_job

LOCK = """
import threading

def guarded():
    lock = threading.Lock()
    return lambda r: (lock, r)

class Guarded(ps.Task):
    def __init__(self):
        self.lock = threading.Lock()
    def execute(self, inputs, outputs): ...

class Short(ps.StatefulTask):
    def update(self, key, values): ...
"""
MEMORY = "ps.MemorySource([1])"

LOADED = [
    Row(
        "parameter-of-the-file",
        line(source='ps.LogSource(ps.params["log"])'),
        (", line 5: parameter 'log' is not given: give it with --param log=VALUE",),
    ),
    Row(
        "parameter-of-a-task",
        line(source=MEMORY, task='lambda r: (ps.params["since"], r)'),
        (", line 6, vertex 'work': parameter 'since' is not given: give it with --param since=VALUE",),
    ),
    Row(
        "option-of-a-source",
        line(source='ps.LogSource("in", partitions=3)'),
        (", line 5: TypeError: ", "got an unexpected keyword argument 'partitions'"),
    ),
    Row(
        "option-of-a-job",
        line(options="retries=3"),
        (", line 4: TypeError: ", "got an unexpected keyword argument 'retries'"),
    ),
]
STARTED = [
    Row(
        "log",
        line(source='ps.LogSource("nope")'),
        ("there is no log 'nope' at ", "`penstock log create nope`", "in job 'line', vertex 'in'"),
    ),
    Row(
        "folder",
        line(source='ps.FileSource("nope")'),
        ("there is no folder ", "create it, or use another folder", "in job 'line', vertex 'in'"),
    ),
    Row(
        "folder-of-a-sink",
        line(source=MEMORY, sink='ps.FileSink("/proc/nope", format="json")'),
        ("FileSink: /proc/nope cannot be written", "in job 'line', vertex 'out'"),
    ),
    Row(
        "variable-that-cannot-be-sent",
        line(source=MEMORY, before=LOCK, task="guarded()"),
        ("job 'line', vertex 'work': variable 'lock', a lock, cannot be sent to the workers", "prepare(self"),
    ),
    Row(
        "attribute-that-cannot-be-sent",
        line(source=MEMORY, before=LOCK, task="Guarded()"),
        ("job 'line', vertex 'work': attribute 'lock', a lock, cannot be sent", "create it in prepare(self"),
    ),
    Row(
        "arguments-of-update",
        line(source=MEMORY, before=LOCK, task="Short()"),
        ("task 'work': Short.update(self, key, values) is called with (key, values, state)",),
    ),
]


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any) -> NoReturn:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("penstock.spark.spark_runtime.open_session", start)


@rows([*LOADED, *STARTED])
def test_a_run_tells_it(shell: Shell, row: Row) -> None:
    said = shell.run("run", shell.write(f"{row.name.replace('-', '_')}.py", row.file), "--until", "drained")
    assert said.code == row.exit_code
    for words in row.says:
        assert words in said.err


@rows(STARTED)
def test_a_program_is_told(shell: Shell, row: Row) -> None:
    job = load_job(shell.write(f"{row.name.replace('-', '_')}.py", row.file))
    with pytest.raises(ps.PenstockError) as told:
        ps.run(job)
    said = "\n".join([str(told.value), *getattr(told.value, "__notes__", [])])
    for words in row.says:
        assert words in said


def test_a_missing_source_is_told_before_pyspark_is_imported(shell: Shell) -> None:
    shell.write("job.py", line(source='ps.LogSource("nope")'))
    said = shell.process("run", "job.py", before="import sys; sys.modules['pyspark'] = None")
    assert said.code == 1
    assert said.err.startswith("error: there is no log 'nope' at "), "and nothing of Spark before it"
