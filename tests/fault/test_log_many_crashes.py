"""Producers, committers and compactors killed with -9 together, again and again."""

from __future__ import annotations

import json
import random
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from counting_process import CountingProcess, check_alive

from penstock.log import Log
from penstock.record import Record
from support.waiting import DEADLINE, eventually

WORKER = Path(__file__).parents[1] / "unit" / "log" / "worker.py"
PARTITIONS = 2


class Worker(CountingProcess):
    """A process that is to be killed; what it says is the last batch that is in the log."""

    def __init__(self, role: str, path: Path, name: str) -> None:
        super().__init__(str(WORKER), role, str(path), name)
        self.role = role
        self.name = name


class Follower(threading.Thread):
    """Reads a partition as it grows, however its segments are merged meanwhile."""

    def __init__(self, path: Path, partition: int) -> None:
        super().__init__()
        self.got: list[Record] = []
        self.failure: BaseException | None = None
        self.until: int | None = None
        self._path = path
        self._partition = partition

    def run(self) -> None:
        try:
            log = Log.open(self._path)
            done = lambda: self.until is not None and len(self.got) >= self.until  # noqa: E731
            for chunk in log.tail(self._partition, 0, stop=done):
                self.got.extend(chunk)
        except BaseException as error:
            self.failure = error


def got_on(workers: list[Worker], before: dict[str, int]) -> bool:
    return all(worker.said >= before.get(worker.name, -1) + 3 for worker in workers)


def everything(log: Log, partition: int) -> list[Record]:
    return [record for chunk in log.read(partition, 0) for record in chunk]


def expected(batches: int, partition: int) -> list[list[int]]:
    return [[batch, partition, index] for batch in range(batches) for index in range(batch % 4 + 1)]


@pytest.mark.parametrize("rounds", [2, pytest.param(60, marks=pytest.mark.full)])
def test_all_of_them_killed_again_and_again(tmp_path: Path, rounds: int) -> None:
    log = Log.create(tmp_path / "orders", PARTITIONS)
    chance = random.Random(20261115)
    followers = [Follower(log.path, partition) for partition in range(PARTITIONS)]
    for follower in followers:
        follower.start()
    acknowledged: dict[str, int] = {}
    committed = {"commit-0": -1, "commit-1": -1}
    try:
        for number in range(rounds):
            workers = [
                *[Worker("append", log.path, f"append-{number}-{index}") for index in range(2)],
                *[Worker("commit", log.path, name) for name in committed],
                *[Worker("compact", log.path, f"compact-{index}") for index in range(2)],
            ]
            talking = [worker for worker in workers if worker.role != "compact"]
            before = dict(committed)
            try:
                eventually(
                    "each worker has got something done",
                    partial(got_on, talking, before),
                    meanwhile=partial(check_alive, workers),
                    every=0.001,
                )
                time.sleep(chance.uniform(0, 0.05))
            finally:
                for worker in workers:
                    worker.kill()
                for worker in workers:
                    worker.wait()
            for worker in talking:
                if worker.role == "append":
                    acknowledged[worker.name] = worker.said
                else:
                    committed[worker.name] = worker.said
        # What was decided and not published yet is published by whoever comes next.
        survivor = Log.open(log.path)
        from_decisions = finish(survivor)
        for name, said in committed.items():
            assert from_decisions[name] in (said, said + 1)
        survivor.append([Record("survivor", [0, 0, 0])], 0)
        for follower in followers:
            follower.until = survivor.end(follower._partition)
    finally:
        for follower in followers:
            follower.until = follower.until or 0
            follower.join(DEADLINE)

    found = [everything(survivor, partition) for partition in range(PARTITIONS)]
    for name, said in acknowledged.items():
        mine = [record.value for record in found[0] if record.key == name]
        # One append at most was in the log before its acknowledgement got out.
        assert mine in (expected(said + 1, 0), expected(said + 2, 0)), name
    for name, last in from_decisions.items():
        for partition in range(PARTITIONS):
            mine = [record.value for record in found[partition] if record.key == name]
            assert mine == expected(last + 1, partition), name
    assert found[0][-1].key == "survivor"
    assert len({(record.key, *record.value) for record in found[0]}) == len(found[0])
    for follower, records in zip(followers, found, strict=True):
        assert follower.failure is None
        assert follower.got == records

    survivor.compact()
    assert [everything(Log.open(log.path), partition) for partition in range(PARTITIONS)] == found
    assert not survivor.stat(verify=True).damaged
    assert all(one.segments <= 2 for one in survivor.stat().partitions)


def finish(log: Log) -> dict[str, int]:
    """Publish the last decision of each committer, twice, and return its number."""
    from penstock.log import StagedSegment

    last = {}
    for decision in sorted(log.path.parent.glob("commit-*.json")):
        found = json.loads(decision.read_text())
        for _ in range(2):
            log.publish([StagedSegment.from_json(one) for one in found["staged"]], found["since"])
        last[decision.stem] = int(found["batch"])
    return last
