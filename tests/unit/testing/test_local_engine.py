"""``ps.testing.run(engine="local")``: what it computes and refuses, and that only test code selects it."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
import typer.main

import penstock as ps
from penstock.cli.main import command_line
from penstock.cli.supervisor_process import SupervisorOptions
from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.job_documents import JobSpec
from penstock.daemon.worker_folder import WorkerConfig
from penstock.errors import SettingError, TaskError
from penstock.supervisor.node_instances import FolderInstances
from penstock.testing import local_engine
from penstock.web import request_schemas

SOURCES = Path(ps.__file__).parent


class Tally(ps.StatefulTask):
    """Numbers what comes of each key."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        seen = state or 0
        return seen + len(values), [(key, seen + n) for n, _ in enumerate(values, start=1)]


def _ends(job: ps.Job) -> tuple[Any, Any]:
    return job.source("in", ps.MemorySource()), job.sink("out", ps.MemorySink())


def _pairs(records: list[ps.Record]) -> Counter[tuple[Any, Any]]:
    return Counter((record.key, record.value) for record in records)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("batch", [None, 4])
@pytest.mark.parametrize("parallelism", [None, 5])
def test_state_is_kept_from_batch_to_batch(
    partitions: int, batch: int | None, parallelism: int | None
) -> None:
    job = ps.Job("tally", parallelism=parallelism)
    source, out = _ends(job)
    source >> job.task("tally", Tally()) >> out
    feed = [(n % 3, n) for n in range(20)]
    result = ps.testing.run(job, {"in": feed}, partitions=partitions, batch=batch, engine="local")
    visits = {0: 7, 1: 7, 2: 6}
    assert _pairs(result["out"]) == Counter((key, n + 1) for key, of in visits.items() for n in range(of))
    assert result.report.records_in == 20
    assert result.report.batches == (1 if batch is None else 5)


def test_windows_are_closed_and_late_records_set_aside() -> None:
    job = ps.Job("windows")
    source, out = _ends(job)
    source >> job.task("sum", ps.Sum(), window=ps.TimeWindow(10)) >> out
    feed = [ps.Record("a", n, ts) for n, ts in ((1, 1.0), (2, 5.0), (3, 12.0), (4, 3.0), (5, 25.0))]
    result = ps.testing.run(job, {"in": feed}, batch=1, engine="local")
    assert [(r.value, r.ts) for r in result["out"]] == [(3, 9.999), (3, 19.999), (5, 29.999)]
    assert [(late.vertex, late.record.value) for late in result.late] == [("sum", 4)]


def test_loops_end_and_what_never_does_is_discarded() -> None:
    job = ps.Job("loop", max_iterations=3)
    source, out = _ends(job)

    class Halve(ps.Task):
        outputs = ("again", "done")

        def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
            for record in inputs["in"]:
                port = "done" if record.value == 1 else "again"
                outputs.emit(record.key, record.value if port == "done" else record.value // 2, port=port)

    halve = job.task("halve", Halve())
    source >> halve
    halve["again"] >> halve
    halve["done"] >> out
    result = ps.testing.run(job, {"in": [1, 2, 8, 64]}, engine="local")
    assert [record.value for record in result["out"]] == [1, 1, 1]
    assert [(entry.vertex, entry.count) for entry in result.discarded] == [("halve", 4)]


@pytest.mark.parametrize(("policy", "errors"), [("discard", 1), (ps.Retry(1, delay=0, then="discard"), 1)])
def test_what_code_cannot_deal_with_is_set_aside(policy: Any, errors: int) -> None:
    job = ps.Job("aside")
    source, out = _ends(job)
    source >> job.task("inverse", lambda r: 6 // r.value, on_error=policy) >> out
    result = ps.testing.run(job, {"in": [1, 0, 2]}, engine="local")
    assert [record.value for record in result["out"]] == [6, 3]
    assert [(failed.vertex, failed.value) for failed in result.errors] == [("inverse", 0)] * errors


def test_each_sink_gets_what_is_sent_to_it() -> None:
    job = ps.Job("sinks")
    source = job.source("in", ps.MemorySource())
    other = job.source("other", ps.MemorySource())
    small = job.task("small", lambda r: r.value if r.value < 3 else None)
    source >> small >> job.sink("small-ones", ps.MemorySink())
    [source, other] >> job.sink("all", ps.MemorySink())
    other >> job.task("count", ps.Count()) >> job.sink("counts", ps.MemorySink())
    result = ps.testing.run(
        job, {"in": range(5), "other": [("a", 7), ("a", 8)]}, partitions=2, batch=3, engine="local"
    )
    assert sorted(record.value for record in result["small-ones"]) == [0, 1, 2]
    assert sorted(record.value for record in result["all"]) == [0, 1, 2, 3, 4, 7, 8]
    assert result["counts"][-1].value == 2


def test_a_task_that_fails_is_named_with_its_job() -> None:
    job = ps.Job("wrong")
    source, out = _ends(job)
    source >> job.task("guilty", lambda r: 1 // r.value) >> out
    with pytest.raises(TaskError, match="ZeroDivisionError") as caught:
        ps.testing.run(job, {"in": [0]}, engine="local")
    assert (caught.value.job, caught.value.vertex) == ("wrong", "guilty")


def test_code_that_cannot_be_sent_is_refused_as_on_spark() -> None:
    lock = Lock()
    job = ps.Job("stuck")
    source, out = _ends(job)
    source >> job.task("locked", lambda r: (lock, r.value)) >> out
    with pytest.raises(TaskError, match="cannot be sent to the workers") as caught:
        ps.testing.run(job, {"in": [1]}, engine="local")
    assert caught.value.vertex == "locked"


def test_tasks_get_copies_of_the_objects_of_the_test() -> None:
    seen: list[Any] = []
    job = ps.Job("copies")
    source, out = _ends(job)

    def note(record: ps.Record) -> ps.Record:
        seen.append(record.value)
        return record

    source >> job.task("note", note) >> out
    assert len(ps.testing.run(job, {"in": [1, 2]}, engine="local")["out"]) == 2
    assert seen == []


@pytest.mark.parametrize("task", [ps.Sql("SELECT n FROM input"), ps.DataFrameTask(lambda frame: frame)])
def test_vertices_that_spark_runs_are_refused_before_anything_runs(
    task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine.LocalQuery, "_launch", lambda _: pytest.fail("it was started"))
    job = ps.Job("native")
    source = job.source("in", ps.MemorySource())
    shape = job.task("shape", lambda r: {"n": r.value}, schema="n long")
    source >> shape >> job.task("query", task) >> job.sink("out", ps.MemorySink())
    with pytest.raises(SettingError, match=r"job 'native' cannot run with engine='local'.*'query'"):
        ps.testing.run(job, {"in": [1]}, engine="local")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "flink"}, "engine takes 'spark' or 'local', not 'flink'"),
        ({"engine": "local", "master": "local[2]"}, "neither master nor conf"),
        ({"engine": "local", "conf": {"spark.ui.enabled": "false"}}, "neither master nor conf"),
    ],
)
def test_options_without_a_meaning_are_refused(options: dict[str, Any], message: str) -> None:
    job = ps.Job("options")
    source, out = _ends(job)
    source >> out
    with pytest.raises(SettingError, match=message):
        ps.testing.run(job, {"in": [1]}, **options)


def test_neither_pyspark_nor_java_is_needed(tmp_path: Path) -> None:
    program = """
import sys
import penstock as ps
job = ps.Job("bare")
job.source("in", ps.MemorySource()) >> job.task("count", ps.Count()) >> job.sink("out", ps.MemorySink())
result = ps.testing.run(job, {"in": ["a", "a"]}, engine="local")
assert [record.value for record in result["out"]] == [2], result
print([name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j")])
"""
    bare = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**bare, "PATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def _commands(command: Any) -> Iterator[Any]:
    yield command
    for inner in getattr(command, "commands", {}).values():
        yield from _commands(inner)


def test_no_option_of_a_command_selects_it() -> None:
    names = {
        option
        for command in _commands(typer.main.get_command(command_line()))
        for parameter in command.params
        for option in (parameter.name or "", *parameter.opts, *_variables(parameter))
    }
    assert len(names) > 50
    assert [name for name in names if _selects(name)] == []


def _variables(parameter: Any) -> list[str]:
    given = parameter.envvar or []
    return [given] if isinstance(given, str) else list(given)


def _selects(name: str) -> bool:
    return any(word in name.lower() for word in ("engine", "runtime", "worker_module", "worker-module"))


def test_no_document_and_no_request_selects_it() -> None:
    documents = (JobSpec, Assignment, WorkerConfig)
    names = {field.name for document in documents for field in fields(document)}
    requests = [
        model
        for _, model in inspect.getmembers(request_schemas, inspect.isclass)
        if hasattr(model, "model_json_schema") and model.__module__ == request_schemas.__name__
    ]
    assert requests
    names |= set(json.dumps([model.model_json_schema() for model in requests]).replace('"', " ").split())
    assert [name for name in sorted(names) if _selects(name)] == []


def test_only_test_code_names_its_modules() -> None:
    """Neither a setting nor a variable of the environment leads to it: nothing else imports or starts it."""
    naming = [
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if any(word in path.read_text() for word in ("local_engine", "testing.worker", "LocalRuntime"))
    ]
    assert {path for path in naming if not path.startswith("testing/")} == set()


def test_which_worker_is_started_is_said_where_a_supervisor_is_made_and_nowhere_else() -> None:
    assert (
        inspect.signature(FolderInstances).parameters["worker_module"].default
        == "penstock.worker.worker_main"
    )
    naming = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if "worker_module" in path.read_text()
    }
    assert naming == {"supervisor/node_instances.py", "cli/supervisor_process.py"}
    # The process of a supervisor reads its options from a document, and these have no such field.
    assert not any(_selects(field.name) for field in fields(SupervisorOptions))
