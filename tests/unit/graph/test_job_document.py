"""The JSON form of a job: complete, plain, and the same from run to run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.unit.graph.samples import NoSink, NoSource, file_types, line_job, same

from penstock.graph.aggregations import Count
from penstock.graph.job import Job
from penstock.graph.job_document import operator_name
from penstock.graph.qos import QoS
from penstock.graph.tasks import FunctionTask

ROOT = Path(__file__).parents[3]


def test_the_whole_document() -> None:
    job = Job("words", qos=QoS(7), max_iterations=2, spark={"spark.b": 1, "spark.a": "x"})
    lines = job.source("lines", NoSource("topic-1"))
    count = job.task(
        "count", Count, parallelism=2, max_iterations=1, qos={"max_loss": 0.5}, config={"k": "v"}
    )
    lines >> count >> job.sink("counts", NoSink())
    samples = NoSource.__module__
    plain: dict[str, Any] = dict.fromkeys(("parallelism", "max_iterations", "qos"))
    vertex = plain | {
        "stateful": False,
        "options": {},
        "sync": None,
        "window": None,
        "on_error": None,
        "schema": None,
    }
    assert job.to_dict() == {
        "format": "penstock.job",
        "version": 2,
        "name": "words",
        "mode": "throughput",
        "guarantee": "exactly-once",
        "durability": "none",
        "replicas": {"k": 0, "publisher": "first", "recovery": "copy", "warm_standby": False},
        "qos": {"priority": 7, "max_latency": None, "max_loss": 0.0},
        "max_iterations": 2,
        "parallelism": None,
        "buckets": None,
        "interval": None,
        "on_error": "fail",
        "spark": {"spark.a": "x", "spark.b": 1},
        "vertices": [
            vertex
            | {
                "name": "lines",
                "kind": "source",
                "operator": f"{samples}.NoSource",
                "inputs": [],
                "outputs": ["out"],
                "options": {"topic": "topic-1"},
                "replicable": True,
            },
            vertex
            | {
                "name": "count",
                "kind": "task",
                "operator": "penstock.graph.aggregations.Count",
                "inputs": ["in"],
                "outputs": ["out"],
                "parallelism": 2,
                "max_iterations": 1,
                "qos": {"priority": 5, "max_latency": None, "max_loss": 0.5},
                "stateful": True,
                "schema": None,
                "options": {},
            },
            vertex
            | {
                "name": "counts",
                "kind": "sink",
                "operator": f"{samples}.NoSink",
                "inputs": ["in"],
                "outputs": [],
            },
        ],
        "edges": [
            {
                "source": "lines",
                "source_port": "out",
                "target": "count",
                "target_port": "in",
                "by": "same-key",
            },
            {
                "source": "count",
                "source_port": "out",
                "target": "counts",
                "target_port": "in",
                "by": "round-robin",
            },
        ],
    }
    assert json.loads(job.to_json()) == job.to_dict()


class Callable:
    def __call__(self, record: Any) -> Any:
        return record


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (same, f"{same.__module__}.same"),
        (lambda record: record, f"{__name__}.<lambda>"),
        (partial(same), f"functools.partial({same.__module__}.same)"),
        (Callable(), f"{__name__}.Callable"),
        (len, "builtins.len"),
        (str.split, "str.split"),
    ],
)
def test_names_of_functions(function: Any, name: str) -> None:
    assert operator_name(FunctionTask(function)) == name


def test_secrets_stay_out_of_the_document() -> None:
    job = line_job(spark={"spark.hadoop.fs.s3a.secret.key": "abc", "spark.x": "y", "my.Password": "abc"})
    assert job.to_dict()["spark"] == {
        "spark.hadoop.fs.s3a.secret.key": "(hidden)",
        "spark.x": "y",
        "my.Password": "(hidden)",
    }


@pytest.mark.parametrize(
    "nonsense", [object(), float("nan"), [1, {2: object()}], lambda: 1, b"x", {"a", "b"}]
)
def test_a_wrong_job_has_a_document_too(nonsense: Any) -> None:
    def build() -> str:
        job = line_job(nonsense, mode=nonsense, k=nonsense, qos=nonsense, spark=nonsense)
        job.vertices[1].name = nonsense
        job.source(nonsense, nonsense) >> job.task(nonsense, nonsense) >> job.sink(nonsense, nonsense)
        job.connect(job.vertices[0], job.vertices[2], by=nonsense)
        return job.to_json()

    text = build()
    assert text == build()
    assert json.loads(text)["format"] == "penstock.job"
    assert "0x" not in text


def test_the_document_is_the_same_in_every_process() -> None:
    code = "from tests.unit.graph.samples import *\nfor job in (wordcount(), file_types(), ranking()):\n"
    code += "    print(job.to_json()); print(job.explain()); print(job.cycles())"
    texts = set()
    for seed in ("0", "1", "4242"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        texts.add(done.stdout)
    assert len(texts) == 1
    assert file_types().to_json() in texts.pop()
