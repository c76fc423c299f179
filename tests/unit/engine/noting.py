"""Replicas whose sinks note all that they are told, and a time that passes when somebody waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine.blueprint import Blueprint, make_blueprint
from penstock.graph.connector_api import Receipt, Sink, SinkWriter, WriteContext
from penstock.record import Record
from penstock.replicas.agreement.agreement_protocol import ReplicaSpec
from penstock.replicas.agreement.batch_agreement import AgreedOutput, Offer

END = {"batch": 1, "sources": {"in": {"0": 5}}}

Told = list[tuple[str, Any]]


class Noted(Sink):
    """Notes what it is told, in one list for all copies of it."""

    transactional = True
    shared = True
    holdable = True

    def __init__(self, told: Told) -> None:
        self.told = told

    def writer(self, context: WriteContext) -> SinkWriter:
        return _Writer(context.task)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        self.told.append(("commit", (batch, *receipts)))

    def discard(self, receipts: Sequence[Receipt]) -> None:
        self.told.append(("discard", tuple(receipts)))


class Alone(Noted):
    """One that only one replica may tell something."""

    shared = False


class Plain(Noted):
    """One that can neither take over what another has staged nor be told twice."""

    transactional = shared = holdable = False


class _Writer(SinkWriter):
    """Its receipts are the records, and the task that they are of."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._values: list[Any] = []

    def write(self, records: list[Record]) -> None:
        self._values += [record.value for record in records]

    def finish(self) -> Receipt | None:
        return f"{self._task}: {self._values}" if self._values else None


class Clock:
    """A time that passes when it is told to, and when somebody sleeps.

    For the thread of the test alone: a Spark session in the same process has threads that sleep, too.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.calls: list[tuple[float, Callable[[], object]]] = []
        """What happens meanwhile, and when."""
        owner = threading.get_ident()

        def for_owner(own: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
            def called(*told: Any) -> Any:
                return own(*told) if threading.get_ident() == owner else real(*told)

            return called

        monkeypatch.setattr(time, "monotonic", for_owner(lambda: self.now, time.monotonic))
        monkeypatch.setattr(time, "time", for_owner(lambda: self.now, time.time))
        monkeypatch.setattr(time, "sleep", for_owner(self.sleep, time.sleep))

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for call in [call for call in self.calls if call[0] <= self.now]:
            self.calls.remove(call)
            call[1]()


def replica(place: Path, number: int, sink: Sink, **options: Any) -> tuple[AgreedOutput, Blueprint]:
    """Start a replica, or start it again."""
    job = ps.Job("count", k=1)
    job.source("in", ps.MemorySource([1])) >> job.sink("out", sink)
    folder = place / f"member-{number}"
    folder.mkdir(exist_ok=True)
    replica_spec = ReplicaSpec(f"count~{number}", number, str(place / "agreement"), **options)
    blueprint = replace(make_blueprint(job, folder=folder, buckets=1, sides={}), replica_spec=replica_spec)
    return AgreedOutput(blueprint), blueprint


def offer(receipt: Any, digest: int = 1, batch: int = 0, **more: Any) -> Offer:
    """Return what a replica has made of a batch."""
    return Offer(batch, END, {"out": [receipt]}, {"out": digest}, more.pop("state", {}), **more)
