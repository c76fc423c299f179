"""Producers killed with -9 while they append: what was acknowledged is there, nothing is there in part."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path

import pytest
from counting_process import CountingProcess, check_alive

from penstock.log import Log
from support.waiting import eventually

PRODUCER = Path(__file__).parents[1] / "unit" / "log" / "producer.py"
TOGETHER = 2


def size_of(batch: int) -> int:
    """What producer.py says, said again: a test should not trust the code that made its data."""
    return 1_000 if batch % 7 == 6 else batch % 5 + 1


class Producer(CountingProcess):
    """A producer process; what it says is the last batch that is in the log."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(str(PRODUCER), str(path), name, "1000000", "0")
        self.name = name


def acknowledged_some(producers: list[Producer]) -> bool:
    return all(producer.said >= 8 for producer in producers)


def batches(log: Log) -> Iterator[tuple[str, int, list[int]]]:
    """Each run of records that belong to one append, as the log has them."""
    records = (record for chunk in log.read(0, 0) for record in chunk)
    for (name, batch), run in groupby(records, key=lambda record: (record.key, record.value[0])):
        yield name, batch, [record.value[1] for record in run]


@pytest.mark.parametrize("rounds", [4, pytest.param(12, marks=pytest.mark.full)])
def test_killed_producers_leave_whole_appends(tmp_path: Path, rounds: int) -> None:
    log = Log.create(tmp_path / "orders")
    chance = random.Random(20260726)
    acknowledged: dict[str, int] = {}
    for round_number in range(rounds):
        producers = [Producer(log.path, f"{round_number}-{index}") for index in range(TOGETHER)]
        try:
            eventually(
                "each producer has acknowledged something",
                partial(acknowledged_some, producers),
                meanwhile=partial(check_alive, producers),
                every=0.001,
            )
            time.sleep(chance.uniform(0, 0.03))
        finally:
            for producer in producers:
                producer.end()
        acknowledged |= {producer.name: producer.said for producer in producers}

    found: dict[str, list[int]] = {name: [] for name in acknowledged}
    for name, batch, indexes in batches(Log.open(log.path)):
        assert indexes == list(range(size_of(batch))), f"append {batch} of {name} is there in part or twice"
        found[name].append(batch)
    for name, last in acknowledged.items():
        # One append at most was in the log before its acknowledgement got out.
        assert found[name] in (list(range(last + 1)), list(range(last + 2))), name

    assert not log.stat(verify=True).damaged
    survivor = Log.open(log.path)
    end = survivor.end(0)
    survivor.append([record for chunk in survivor.read(0, 0, 1) for record in chunk], partition=0)
    assert survivor.end(0) == end + 1
    survivor.clean(older_than_seconds=-1)
    assert list((log.path / "staging").iterdir()) == []
