"""A sample of the tables in processes of their own, with all that is printed at the end."""

from __future__ import annotations

import pytest
from bad_rows import Shell, line

from support.engines import LOCAL, SPARK
from support.running import MASTER

RUN = ("--until", "drained", "--master", MASTER)


@pytest.mark.parametrize(
    ("text", "options", "code", "says"),
    [
        ("x = (", (), 1, "error: job.py, line 1: '(' was never closed"),
        ("def f(): return f()\nf()", (), 1, "error: job.py, line 1: RecursionError: maximum recursion"),
        (line(), ("--for", "soon"), 2, "'soon' is not a duration"),
        (line(), (), 1, "error: there is no log 'in' at "),
    ],
    ids=["syntax", "recursion", "option", "log"],
)
def test_a_mistake_that_needs_no_spark(
    shell: Shell, text: str, options: tuple[str, ...], code: int, says: str
) -> None:
    shell.write("job.py", text)
    said = shell.process("run", "job.py", *options)
    assert said.code == code
    assert says in said.one_line()


CODE = """
import os

def work(r):
    if r.value == 3:
        {what}
    return r
"""
RAISES = "raise ValueError('three')"
RAISED = "error: job 'line', vertex 'work': ValueError: three"


@pytest.mark.parametrize(
    ("what", "engine", "says"),
    [
        pytest.param(RAISES, LOCAL, RAISED, id="raises-local"),
        pytest.param(RAISES, SPARK, RAISED, id="raises-spark", marks=pytest.mark.full),
        pytest.param(
            "os._exit(1)",
            SPARK,
            "error: job 'line' failed: a Python worker process died while it ran the job's code",
            id="dies",
            marks=pytest.mark.full,
        ),
    ],
)
def test_code_that_fails(shell: Shell, what: str, engine: str, says: str) -> None:
    shell.fill("in", [1, 2, 3])
    shell.write("job.py", line(before=CODE.replace("{what}", what), task="work"))
    said = shell.process("run", "job.py", *RUN, engine=engine)
    assert said.code == 1
    assert says in said.err
    trace = (shell.home / "jobs" / "line" / "trace.txt").read_text()
    assert "Traceback (most recent call last)" in trace or "\tat " in trace, "the details are kept"
    assert shell.values("out") == []


@pytest.mark.parametrize(
    ("options", "master", "says"),
    [
        (("--master", "bogus"), "bogus", "Master must either be yarn or start with spark, k8s, or local"),
        pytest.param(
            ("--master", "local[x]"),
            "local[x]",
            "Could not parse Master URL: 'local[x]'",
            marks=pytest.mark.full,
        ),
        (("--conf", "spark.driver.memory=zzz"), "local[*]", "Invalid maximum heap size: -Xmxzzz"),
    ],
    ids=["bogus", "local", "memory"],
)
def test_a_spark_that_does_not_start(shell: Shell, options: tuple[str, ...], master: str, says: str) -> None:
    shell.fill("in", [1])
    shell.write("job.py", line())
    said = shell.process("run", "job.py", *options)
    assert said.code == 1
    assert f"error: Spark does not start with master '{master}' and these settings: " in said.err
    assert said.err.endswith(f"{says}\n")
