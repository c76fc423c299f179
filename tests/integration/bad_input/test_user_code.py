"""Poisonous user code: the job ends with a word on what and where, or goes on without the record."""

from __future__ import annotations

import pytest
from bad_rows import Row, Shell, line

from support.engines import each_on

CLASSES = """
import os, sys, threading

class Unprintable(Exception):
    def __str__(self): raise RuntimeError("no words")

class Raises(ps.Task):
    def execute(self, inputs, outputs):
        raise Unprintable

class WrongPort(ps.Task):
    def execute(self, inputs, outputs):
        outputs.emit(None, 1, port="left")

class WrongShape(ps.StatefulTask):
    def update(self, key, values, state):
        return state

class WrongPrepare(ps.Task):
    def prepare(self, config):
        raise LookupError("no such model")
    def execute(self, inputs, outputs): ...

class Lock(ps.StatefulTask):
    def update(self, key, values, state):
        return threading.Lock(), []

class Own:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return self.n == other.n
    def __hash__(self): return hash(self.n)

def deep(r):
    return deep(r)

def leave(r):
    os._exit(1) if r.value == 3 else None
    return r

def interrupt(r):
    raise KeyboardInterrupt

def exit(r):
    sys.exit(4)

def greedy(r):
    raise MemoryError("no room for the model")

def words(r):
    for word in r.value.split():
        yield word
"""

FAILS = [
    Row(
        "function-raises",
        line("function-raises", task="lambda r: 1 // (r.value - 3)"),
        (
            "job 'function-raises', vertex 'work': ZeroDivisionError: integer division or modulo by zero",
            "while it processed Record(key=None, value=3, ts=",
            ', in <lambda>: task = job.task("work", lambda r: 1 // (r.value - 3))',
        ),
    ),
    Row(
        "generator-raises",
        line("generator-raises", before=CLASSES, task="words"),
        ("job 'generator-raises', vertex 'work': AttributeError: 'int' object has no attribute 'split'",),
    ),
    Row(
        "message-that-cannot-be-shown",
        line("unprintable", before=CLASSES, task="Raises"),
        ("job 'unprintable', vertex 'work': Unprintable (whose message cannot be shown)",),
    ),
    Row(
        "unknown-port",
        line("wrong-port", before=CLASSES, task="WrongPort"),
        ("job 'wrong-port', vertex 'work': ", "'left'"),
    ),
    Row(
        "update-of-a-wrong-shape",
        line("wrong-shape", before=CLASSES, task="WrongShape"),
        (
            "job 'wrong-shape', vertex 'work': TypeError: ",
            "must return (new_state, items), not NoneType",
        ),
    ),
    Row(
        "prepare-raises",
        line("prepare", before=CLASSES, task="WrongPrepare"),
        ("job 'prepare', vertex 'work': LookupError: no such model",),
    ),
    Row(
        "state-that-cannot-be-kept",
        line("lock-state", before=CLASSES, task="Lock"),
        ("job 'lock-state', vertex 'work': TypeError: ",),
    ),
    Row(
        "key-without-a-place",
        line(
            "odd-key",
            task="lambda r: (object(), 1)",
            flow='source >> task >> job.task("count", ps.Count()) >> sink',
        ),
        ("job 'odd-key', vertex 'count': TypeError: ", "<object object"),
    ),
    Row(
        "key-of-a-class-of-the-script",
        line(
            "own-key",
            before=CLASSES,
            task="lambda r: (Own(r.value), 1)",
            flow='source >> task >> job.task("count", ps.Count()) >> sink',
        ),
        ("job 'own-key', vertex 'count': TypeError: a Own cannot be a key: make it a string, a number",),
    ),
    Row(
        "key-without-a-hash",
        line(
            "list-key",
            task="lambda r: ([r.value], 1)",
            flow='source >> task >> job.task("count", ps.Count()) >> sink',
        ),
        ("job 'list-key', vertex 'count': TypeError: unhashable type: 'list'", "Record(key=[1], value=1"),
    ),
    Row(
        "code-that-cannot-be-sent",
        line("locked", before="import threading\nlock = threading.Lock()", task="lambda r: lock and r"),
        (
            "job 'locked', vertex 'work': variable 'lock', a lock, cannot be sent to the workers: ",
            "create it in prepare(self, config)",
            "TypeError: cannot pickle '_thread.lock' object",
        ),
    ),
    Row(
        "sys-exit",
        line("exits", before=CLASSES, task="exit"),
        ("job 'exits', vertex 'work': SystemExit: 4", "while it processed Record(key=None, value=1, ts="),
    ),
    Row(
        "keyboard-interrupt",
        line("interrupted", before=CLASSES, task="interrupt"),
        (
            "job 'interrupted', vertex 'work': KeyboardInterrupt",
            "while it processed Record(key=None, value=1",
        ),
    ),
    Row(
        "memory-error",
        line("greedy", before=CLASSES, task="greedy"),
        ("job 'greedy', vertex 'work': MemoryError: no room for the model",),
    ),
    Row(
        "endless-recursion",
        line("deep", before=CLASSES, task="deep"),
        (
            "job 'deep', vertex 'work': RecursionError: maximum recursion depth exceeded",
            "in deep: return deep(r)",
        ),
    ),
    Row(
        "worker-that-dies",
        line("dies", before=CLASSES, task="leave"),
        ("job 'dies' failed: a Python worker process died while it ran the job's code",),
    ),
    Row(
        "value-too-strange-for-a-log",
        line("strange", task="lambda r: object()"),
        ("job 'strange', vertex 'out': UnstorableValueError: ", "object"),
    ),
    Row(
        "window-without-a-time",
        line(
            "timeless",
            task="lambda r: ps.Record(1, r.value, None)",
            flow='source >> task >> job.task("hourly", ps.Count(), window=ps.TimeWindow("1h")) >> sink',
        ),
        (
            "job 'timeless', vertex 'hourly': ValueError: the record has no time",
            "need one: set Record.ts",
        ),
    ),
    Row(
        "window-with-a-time-that-is-text",
        line(
            "noon",
            task='lambda r: ps.Record(1, r.value, "noon")',
            flow='source >> task >> job.task("hourly", ps.Count(), window=ps.TimeWindow("1h")) >> sink',
        ),
        (
            "job 'noon', vertex 'hourly': TypeError: ",
            "time must be a number of seconds, not 'noon'",
        ),
    ),
    Row(
        "sum-of-what-cannot-be-added",
        line(
            "sums",
            task="lambda r: (1, r.value if r.value % 2 else 'x')",
            flow='source >> task >> job.task("sum", ps.Sum()) >> sink',
        ),
        ("job 'sums', vertex 'sum': TypeError: ",),
    ),
    Row(
        "retry-that-does-not-help",
        line("retries", task="lambda r: 1 // (r.value - 3)", options='on_error=ps.Retry(2, delay="1ms")'),
        ("job 'retries', vertex 'work': ZeroDivisionError",),
    ),
]


@pytest.mark.parametrize(
    ("row", "jobs"),
    each_on(
        ((row.name, row) for row in FAILS),
        on_spark=["function-raises", "code-that-cannot-be-sent"],
        only_on_spark=["worker-that-dies"],
    ),
    indirect=["jobs"],
)
def test_code_that_fails_ends_the_job_and_loses_nothing(jobs: Shell, row: Row) -> None:
    jobs.fill("in", [1, 2, 3, 4])
    file = jobs.write(f"fails_{row.name.replace('-', '_')}.py", row.file)
    said = jobs.drain(file)
    assert said.code == 1, said.err
    for words in row.says:
        assert words in said.err
    out = jobs.run("log", "read", "out")
    assert out.out == "", "the batch has not happened"


def _discarding(jobs: Shell, name: str, task: str, items: list[object], **options: str) -> None:
    jobs.fill("in", items)
    file = jobs.write(
        f"discards_{name}.py", line(name, task=task, options='on_error="discard"', before=CLASSES, **options)
    )
    said = jobs.drain(file)
    assert said.code == 0, said.err


def test_a_function_that_raises_loses_only_its_record(spark: Shell) -> None:
    _discarding(spark, "some", "lambda r: 12 // r.value", [1, 0, 4, "x", 6])
    assert spark.values("out") == [12, 2, 3]
    assert spark.errors("some") == [
        ("work", "TypeError", "unsupported operand type(s) for //: 'int' and 'str'", "x"),
        ("work", "ZeroDivisionError", "integer division or modulo by zero", 0),
    ]


def test_a_memory_error_and_a_recursion_lose_only_their_records(jobs: Shell) -> None:
    _discarding(
        jobs, "heavy", "lambda r: deep(r) if r.value == 1 else greedy(r) if r.value == 2 else r", [1, 2, 3]
    )
    assert jobs.values("out") == [3]
    found = jobs.errors("heavy")
    assert [(vertex, error, value) for vertex, error, _, value in found] == [
        ("work", "MemoryError", 2),
        ("work", "RecursionError", 1),
    ]


def test_a_program_that_is_to_end_is_no_bad_record(jobs: Shell) -> None:
    jobs.fill("in", [1])
    for name, says in (("exit", "SystemExit: 4"), ("interrupt", "KeyboardInterrupt")):
        file = jobs.write(
            f"ends_{name}.py", line(f"ends-{name}", task=name, options='on_error="discard"', before=CLASSES)
        )
        said = jobs.drain(file)
        assert said.code == 1
        assert f"job 'ends-{name}', vertex 'work': {says}" in said.err


def test_an_unprintable_error_has_its_entry(jobs: Shell) -> None:
    _discarding(jobs, "mute", "Raises", [1])
    assert jobs.errors("mute") == [("work", "Unprintable", "(its message cannot be shown)", 1)]


def test_a_value_too_strange_for_a_log_loses_only_its_record(jobs: Shell) -> None:
    _discarding(jobs, "odd", "lambda r: (r.value, object() if r.value == 2 else 'fine')", [1, 2, 3])
    assert [(entry["key"], entry["value"]) for entry in jobs.read("out")] == [(1, "fine"), (3, "fine")]
    [(vertex, error, message, value)] = jobs.errors("odd")
    assert (vertex, error) == ("out", "ValueError")
    assert "a log cannot store a value of type object" in message
    assert value.startswith("<object object at")


def test_a_key_without_a_place_loses_only_its_record(jobs: Shell) -> None:
    _discarding(
        jobs,
        "keys",
        "lambda r: (object() if r.value == 2 else r.value, 1)",
        [1, 2, 3],
        flow='source >> task >> job.task("count", ps.Count()) >> sink',
    )
    assert sorted(entry["key"] for entry in jobs.read("out")) == [1, 3]
    [(vertex, error, _, value)] = jobs.errors("keys")
    assert (vertex, error, value) == ("count", "TypeError", 1)


def test_an_update_that_raises_loses_only_its_values(jobs: Shell) -> None:
    jobs.fill("in", [1, 2, "x", 3])
    before = (
        "class Add(ps.StatefulTask):\n"
        "    def update(self, key, values, state):\n"
        "        state = (state or 0) + sum(values)\n"
        "        return state, [state]\n"
    )
    file = jobs.write(
        "adds.py",
        line(
            "adds",
            before=before,
            task='lambda r: ("all", r.value)',
            flow='source >> task >> job.task("add", Add, on_error="discard") >> sink',
        ),
    )
    assert jobs.drain(file).code == 0
    assert max(jobs.values("out")) == 6
    [(vertex, error, _, value)] = jobs.errors("adds")
    assert (vertex, error, value) == ("add", "TypeError", ["x"])


def test_a_record_without_a_time_is_no_part_of_a_window(jobs: Shell) -> None:
    _discarding(
        jobs,
        "untimely",
        "lambda r: ps.Record('k', r.value, None if r.value == 2 else 5.0)",
        [1, 2, 3],
        flow='source >> task >> job.task("hourly", ps.Count(), window=ps.TimeWindow("1h")) >> sink',
    )
    [(vertex, error, message, value)] = jobs.errors("untimely")
    assert (vertex, error, value) == ("hourly", "ValueError", 2)
    assert message.startswith("the record has no time, and windows of event time need one")
