"""The contract of a source that replicas read: who has planned a range, and when it is read, is all one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.replicated_reader import SOURCES

import penstock as ps
from penstock.log import Log, log_folder
from penstock.record import Record
from support.waiting import DEADLINE, eventually

BATCHES = 6


class Replica:
    """A process with a source of its own."""

    def __init__(self, kind: str, place: Path) -> None:
        script = str(Path(__file__).with_name("replicated_reader.py"))
        self._process = subprocess.Popen(
            [sys.executable, script, kind, str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def plan(self, position: Any) -> Any:
        """Return where the next batch ends, as soon as there is something to read."""

        def further() -> Any:
            end = self.ask("latest", position)
            return end if end != position else None

        return eventually("there is something to read", further)

    def end(self) -> None:
        self._process.communicate(timeout=DEADLINE)


def feed(kind: str, place: Path, number: int) -> None:
    """Bring something new, also such that sorts before what there is."""
    if kind == "log":
        log = Log.create(log_folder("in", place), partitions=3, exist_ok=True)
        log.append([Record(str(n), [number, n], float(n)) for n in range(10)])
    if kind in ("file", "json"):
        folder = place / "in"
        folder.mkdir(exist_ok=True)
        for name in (f"{99 - number}", f"x{number}"):
            staged = folder / f".{name}"
            staged.write_text(f'{{"k": "{name}"}}\n' if number % 2 else f'{{"k": {number}}}\nno json\n')
            os.utime(staged, (1_000_000 - number, 1_000_000 - number))
            staged.rename(folder / name)


@pytest.fixture(params=SOURCES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def replicas(kind: str, tmp_path: Path) -> Iterator[list[Replica]]:
    feed(kind, tmp_path, 0)
    started = [Replica(kind, tmp_path) for _ in range(2)]
    yield started
    for replica in started:
        replica.end()


def test_what_one_replica_has_planned_every_replica_reads(
    kind: str, replicas: list[Replica], tmp_path: Path
) -> None:
    position = replicas[0].ask("begin")
    seen = 0
    for number in range(1, BATCHES + 1):
        planner, other = replicas[number % 2], replicas[1 - number % 2]
        end = planner.plan(position)
        at_once = planner.ask("read", position, end)
        # The other one comes to the batch when there is more already, and has looked at it.
        feed(kind, tmp_path, number)
        other.ask("latest", position)
        assert other.ask("read", position, end) == at_once
        assert planner.ask("read", position, end) == at_once
        seen += sum(len(records) for _, records, _ in at_once["parts"])
        position = end
    assert seen >= BATCHES
    late = Replica(kind, tmp_path)
    try:
        assert late.ask("read", replicas[0].ask("begin"), position)["parts"], "one that joins later reads all"
        assert late.ask("latest", position).keys() == position.keys()
    finally:
        late.end()


def test_all_sources_are_here_or_refused_for_replicas() -> None:
    known = {type(make(Path("/none"))).__name__ for make in SOURCES.values()}
    exported = {name for name in ps.__all__ if name.endswith("Source") and name != "Source"}
    assert exported - known == {"SocketSource"}
    assert not ps.SocketSource().replicable
