"""Code that cannot be sent to the workers is told before anything starts, with what to do instead."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine.driver.job_start import start_job
from penstock.engine.driver.query_runtime import Runtime
from penstock.testing.local_engine import LocalRuntime

CLIENT = threading.Lock()


class _Locked(ps.Task):
    def __init__(self) -> None:
        self.name = "locked"
        self.lock = threading.Lock()

    def execute(self, inputs: Any, outputs: Any) -> None:
        raise NotImplementedError


class _Method:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def call(self, record: ps.Record) -> Any:
        return record, self.lock


class _Callable(_Method):
    def __call__(self, record: ps.Record) -> Any:
        return self.call(record)


def _captured() -> Any:
    lock = threading.Lock()
    return lambda r: (lock, r.value)


def _global() -> Any:
    scope: dict[str, Any] = {"client": CLIENT, "__name__": "__main__"}
    exec("def ask(r):\n    return client, r.value", scope)
    return scope["ask"]


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (
            _Locked(),
            "attribute 'lock', a lock, cannot be sent to the workers: create it in prepare(self, config)",
        ),
        (
            _Method().call,
            "attribute 'lock', a lock, cannot be sent to the workers: use a ps.Task instead of a",
        ),
        (_Callable(), "attribute 'lock', a lock, cannot be sent to the workers: use a ps.Task instead of a"),
        (_captured(), "variable 'lock', a lock, cannot be sent to the workers: use a ps.Task instead of a"),
        (_global(), "variable 'client', a lock, cannot be sent to the workers: use a ps.Task instead of a"),
    ],
    ids=["attribute", "method", "callable", "captured", "global"],
)
def test_what_cannot_be_sent_is_named_before_anything_starts(task: Any, reason: str, tmp_path: Path) -> None:
    job = ps.Job("stuck")
    job.source("in", ps.MemorySource()) >> job.task("ask", task) >> job.sink("out", ps.MemorySink())
    started = []

    def open_runtime() -> Runtime:
        started.append(True)
        return LocalRuntime()

    with pytest.raises(ps.TaskError) as refused:
        start_job(job, open_runtime, folder=tmp_path / "job")
    assert not started
    assert (refused.value.job, refused.value.vertex) == ("stuck", "ask")
    assert reason in str(refused.value)
    assert "create it in prepare(self, config), which is called in each worker process" in str(refused.value)
