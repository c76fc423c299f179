"""What every replica delivers comes out once, by ids that all replicas give alike."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.connect.driver_connectors import ConsoleSink, MemorySink
from penstock.errors import SettingError
from penstock.graph.connector_api import Sink, WriteContext
from penstock.record import Record
from penstock.replicas.record_ids import RecordIds, batch_of, deduplicated


def deliver(sink: Sink, batch: int, records: list[Record], *, ids: bool = True) -> None:
    """Deliver a batch in two tasks, each of which is handed its records in two lists."""
    receipts = []
    for task in range(2):
        given_ids = RecordIds(batch, f"p{task}") if ids else None
        writer = sink.writer(WriteContext("job", "out", batch, f"task-{task}", None, given_ids))
        half = records[task::2]
        writer.write(half[:1])
        writer.write(half[1:])
        receipts.append(writer.finish())
    sink.commit(batch, [receipt for receipt in receipts if receipt is not None])


def test_the_console_prints_ids_where_there_are_replicas() -> None:
    with_ids, without = io.StringIO(), io.StringIO()
    records = [Record("ada", 1), Record(None, "x")]
    deliver(ConsoleSink(with_ids), 7, records)
    deliver(ConsoleSink(without), 7, records, ids=False)
    assert with_ids.getvalue() == "000000000007-p0-00000000\tada\t1\n000000000007-p1-00000000\tx\n"
    assert without.getvalue() == "ada\t1\nx\n"


def test_the_lines_of_two_consoles_come_out_once() -> None:
    both = io.StringIO()
    for batch in range(3):
        for _ in range(2):
            deliver(ConsoleSink(both), batch, [Record("k", "same")] * 4)
    lines = both.getvalue().splitlines()
    assert len(lines) == 24
    assert list(ps.deduplicated(lines)) == list(dict.fromkeys(lines))
    assert len(list(ps.deduplicated(lines))) == 12


def test_records_of_two_lists_come_out_once() -> None:
    sinks = [MemorySink(), MemorySink()]
    for sink in sinks:
        for batch in range(3):
            deliver(sink, batch, [Record("k", batch)] * 3)
    pairs = [pair for sink in sinks for pair in zip(sink.ids, sink.records, strict=True)]
    assert [record for _, record in deduplicated(pairs)] == sinks[0].records
    alone = MemorySink()
    deliver(alone, 0, [Record("k", 0)], ids=False)
    assert alone.ids == []


@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    progress=st.lists(st.integers(0, 2), max_size=40),
    lost=st.lists(st.integers(0, 8), min_size=3, max_size=3),
)
def test_any_interleaving_of_replicas_gives_each_record_once(
    sizes: list[int], progress: list[int], lost: list[int]
) -> None:
    """Replicas come on in any order, and all but the last die anywhere: nothing is missing or double."""
    origin = "b5"
    stream = [
        (record_id, (batch, number))
        for batch, size in enumerate(sizes)
        for number, record_id in enumerate(RecordIds(batch, origin).next(size))
    ]
    ends = [min(len(stream), end) for end in lost[:2]] + [len(stream)]
    reached, delivered = [0, 0, 0], []
    for replica in [*progress, *[2] * len(stream)]:
        if reached[replica] < ends[replica]:
            delivered.append(stream[reached[replica]])
            reached[replica] += 1
    found = list(deduplicated(delivered, horizon=len(sizes)))
    assert sorted(found) == sorted(stream)
    assert len(set(found)) == len(found)


def test_memory_is_bounded_by_the_horizon() -> None:
    class Counting(str):
        """A text that says how many of its kind are alive."""

        alive = 0
        __slots__ = ()

        def __new__(cls, text: str) -> Counting:
            Counting.alive += 1
            return super().__new__(cls, text)

        def __del__(self) -> None:
            Counting.alive -= 1

    most = 0
    items = (Counting(RecordIds(batch, "p0").next(1)[0]) for batch in range(500))
    for _ in deduplicated(items, id=lambda item: item, horizon=5):
        most = max(most, Counting.alive)
    assert most <= 5 + 4, "the horizon, the newest, and what is on its way"


def test_what_is_older_than_the_horizon_counts_as_seen() -> None:
    def at(batch: int) -> dict[str, Any]:
        return {"id": RecordIds(batch, "p0").next(1)[0]}

    items = [at(10), at(4), at(5), at(10)]
    assert list(deduplicated(items, horizon=5)) == [at(10), at(5)]


@pytest.mark.parametrize("item", ["ada\t1", "", ("a", "b"), 7, {"no": 1}, "12-p0-1", None])
def test_what_has_no_id_is_told(item: Any) -> None:
    with pytest.raises(SettingError, match="there is no id of a record in"):
        list(deduplicated([item]))


def test_wrong_options_are_told_at_once() -> None:
    with pytest.raises(SettingError, match="horizon takes a whole number"):
        deduplicated([], horizon=-1)


def test_ids_sort_by_batch() -> None:
    ids = [RecordIds(batch, "b0").next(1)[0] for batch in (0, 9, 10, 99_999, 100_000)]
    assert sorted(ids) == ids
    assert [batch_of(one) for one in ids] == [0, 9, 10, 99_999, 100_000]
