"""What is emitted stays as it was emitted, whatever later calls and later tasks do with the object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import penstock as ps

NUMBERS = [1, 2, 3]
GROWING = [[1], [1, 2], [1, 2, 3]]


class Grows(ps.StatefulTask):
    """Keeps a list, changes it in place and emits it."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        kept = [] if state is None else state
        kept.extend(values)
        return kept, [(key, kept)]


class Nested(Grows):
    """Emits the live list inside of something new."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        kept, _ = super().update(key, values, state)
        return kept, [(key, {"all": (kept,)})]


class OneByOne(Grows):
    """Emits by an iterator, which is asked for an item after the state has changed again."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, Any]:
        kept = [] if state is None else state

        def items() -> Iterator[Any]:
            for value in values:
                kept.append(value)
                yield key, kept

        return kept, items()


def _run(job: ps.Job, batch: int | None, feed: Any = None) -> list[Any]:
    given = [("a", number) for number in NUMBERS] if feed is None else feed
    result = ps.testing.run(job, {"in": given}, batch=batch, partitions=1, engine="local")
    return [record.value for record in result["out"]]


def _job(task: Any, **options: Any) -> ps.Job:
    job = ps.Job("growing", parallelism=1)
    (
        job.source("in", ps.MemorySource())
        >> job.task("grow", task, **options)
        >> job.sink("out", ps.MemorySink())
    )
    return job


@pytest.mark.parametrize("batch", [1, 2, None])
def test_a_state_that_is_emitted_is_not_changed_by_the_next_call(batch: int | None) -> None:
    assert _run(_job(Grows(), window=ps.CountWindow(1)), batch) == GROWING


@pytest.mark.parametrize("batch", [1, None])
def test_nor_is_one_inside_of_what_is_emitted(batch: int | None) -> None:
    given = _run(_job(Nested(), window=ps.CountWindow(1)), batch)
    assert given == [{"all": (kept,)} for kept in GROWING]


@pytest.mark.parametrize("batch", [1, 2, None])
def test_an_iterator_gives_what_the_state_is_at_each_item(batch: int | None) -> None:
    assert _run(_job(OneByOne()), batch) == GROWING


@pytest.mark.parametrize("batch", [1, None])
def test_windows_of_time_emit_the_state_of_their_end(batch: int | None) -> None:
    feed = [ps.Record("a", number, float(number)) for number in [*NUMBERS, 100]]
    job = _job(Grows(), window=ps.TimeWindow("1s"))
    assert _run(job, batch, feed) == [*GROWING, [1, 2, 3, 100]]


@pytest.mark.parametrize("batch", [1, None])
def test_calls_of_different_rounds_of_a_loop_emit_what_each_has_made(batch: int | None) -> None:
    """Records that went round a loop are not in one call with those that are new."""
    job = ps.Job("rounds", parallelism=1, max_iterations=2)
    source, grow = job.source("in", ps.MemorySource()), job.task("grow", Grows())
    again = job.task("again", Again())
    source >> grow >> again
    again["again"] >> grow
    again["out"] >> job.sink("out", ps.MemorySink())
    lengths = [len(value) for value in _run(job, batch, [("a", "x")])]
    assert lengths == [1, 2, 3]


class Again(ps.Task):
    """Sends each record round twice."""

    outputs = ("again", "out")

    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        for record in inputs["in"]:
            outputs.emit(record.key, record.value, port="out")
            outputs.emit(record.key, len(record.value), port="again")


class Spoils(ps.StatefulTask):
    """Emits how long the lists are that it is given, and makes them longer."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        sizes = [len(value) for value in values]
        for value in values:
            value.append(0)
        return None, [(key, tuple(sizes))]


class Longest(ps.CombiningTask):
    """Joins lists in place."""

    def lift(self, value: Any) -> Any:
        return value

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        right[:0] = left
        return right

    def result(self, state: list[Any]) -> tuple[int, ...]:
        return (len(state) // 2,) * 2


@pytest.mark.parametrize("batch", [1, None])
@pytest.mark.parametrize("task", [Spoils(), Longest()])
@pytest.mark.parametrize("window", [ps.CountWindow(2, slide=1), ps.TimeWindow("2s", slide="1s")])
def test_windows_that_overlap_are_given_the_same_values(task: Any, window: Any, batch: int | None) -> None:
    feed = [ps.Record("a", [number], float(number)) for number in range(10, 15)]
    sizes = _run(_job(task, window=window), batch, feed)
    assert sizes.count((1, 1)) == 4
    assert {sum(each) for each in sizes} <= {0, 1, 2}


@pytest.mark.parametrize("window", [None, ps.CountWindow(3), ps.TimeWindow("10s")])
def test_a_merge_that_raises_leaves_no_trace(window: Any) -> None:
    feed = [ps.Record("a", value, 1.0) for value in ([1], [-1], [2])]
    options = {} if window is None else {"window": window}
    values = _run(_job(Positive(), on_error="discard", **options), None, feed)
    assert values == [[1, 2]]


class Positive(Longest):
    """Refuses negative numbers, after it has added them."""

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        left += right
        if min(left) < 0:
            raise ValueError("negative")
        return left

    def result(self, state: Any) -> Any:
        return state


class Union(ps.CombiningTask):
    """Sets that are merged in place."""

    def lift(self, value: Any) -> set[Any]:
        return {value}

    def merge(self, left: set[Any], right: set[Any]) -> set[Any]:
        left |= right
        return left


@pytest.mark.parametrize("task", [Union(), Grows()])
def test_a_task_behind_it_cannot_change_the_state(task: Any) -> None:
    job = ps.Job("emptied", parallelism=1)
    vertex = job.source("in", ps.MemorySource()) >> job.task("grow", task)
    vertex >> job.task("empty", _emptied) >> job.sink("out", ps.MemorySink())
    assert _run(job, 1) == [1, 2, 3]


def _emptied(record: ps.Record) -> int:
    size = len(record.value)
    record.value.clear()
    return size


def _extended(left: list[Any], right: list[Any]) -> list[Any]:
    left.extend(right)
    return left


def _put_in_front(left: list[Any], right: list[Any]) -> list[Any]:
    right[:0] = left
    return right


class Parts(ps.CombiningTask):
    """Lifts a part of the value, and changes it."""

    def lift(self, value: Any) -> Any:
        return value[0]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return _extended(left, right)


@pytest.mark.parametrize("batch", [1, 2, None])
@pytest.mark.parametrize("policy", ["fail", "discard"])
@pytest.mark.parametrize("reduce", [ps.Reduce(_extended), ps.Reduce(_put_in_front), Parts()])
def test_a_merge_in_place_does_not_change_the_records_that_go_elsewhere_too(
    reduce: Any, policy: str, batch: int | None
) -> None:
    job = ps.Job("shared", parallelism=1, on_error=policy)
    source = job.source("in", ps.MemorySource())
    source >> job.task("reduce", reduce) >> job.sink("reduced", ps.MemorySink())
    source >> job.sink("out", ps.MemorySink())
    nested = isinstance(reduce, Parts)
    feed = [("a", [[number]] if nested else [number]) for number in NUMBERS]
    assert _run(job, batch, feed) == [value for _, value in feed]
    assert feed == [("a", [[number]] if nested else [number]) for number in NUMBERS]


@pytest.mark.parametrize("task", [ps.Sum(), ps.Min(), ps.TopN(1)])
def test_a_task_behind_an_aggregation_of_lists_cannot_change_its_state(task: Any) -> None:
    job = ps.Job("emptied", parallelism=1)
    vertex = job.source("in", ps.MemorySource()) >> job.task("total", task)
    vertex >> job.task("size", _spoilt) >> job.sink("out", ps.MemorySink())
    feed = [("a", [1]), ("a", [2])]
    assert _run(job, 1, feed)[-1] == (2 if type(task) is ps.Sum else 1)


def _spoilt(record: ps.Record) -> int:
    size = len(record.value)
    record.value.append([0])
    if type(record.value[0]) is list:
        record.value[0].append(9)
    return size


class Last(ps.CombiningTask):
    """Takes its results out of the state."""

    def lift(self, value: Any) -> list[Any]:
        return [value]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return left + right

    def result(self, state: list[Any]) -> tuple[int, Any]:
        return len(state), state.pop()


def test_a_result_that_changes_what_it_is_given_does_not_change_the_state() -> None:
    assert _run(_job(Last()), 1) == [(1, 1), (2, 2), (3, 3)]
    assert _run(_job(Last()), None)[-1] == (3, 3)


class Refuses(Last):
    """Raises, after it has changed the state, until there are three values."""

    def result(self, state: list[Any]) -> Any:
        if len(state) < 3:
            state.clear()
            raise ValueError("too few")
        return state


def test_nor_does_one_that_raises() -> None:
    assert _run(_job(Refuses(), on_error="discard"), 1) == [NUMBERS]
