"""A sample of the tables in processes of their own, with all that is printed at the end."""

from __future__ import annotations

import pytest
from bad_rows import IMPORT, Shell, line

RUN = ("--until", "drained", "--master", "local[2]")


@pytest.mark.parametrize(
    ("text", "options", "code", "says"),
    [
        ("x = (", (), 1, "error: job.py, line 1: '(' was never closed"),
        ("def f(): return f()\nf()", (), 1, "error: job.py, line 1: RecursionError: maximum recursion"),
        (
            f"{IMPORT}ps.RateSource(0)",
            (),
            1,
            "SettingError: RateSource: per_second takes a number above 0, not 0",
        ),
        (line(sink="[]"), (), 1, "[bad-sink] sink 'out': must be a Sink, not []"),
        (line(), ("--for", "soon"), 2, "'soon' is not a duration"),
        (line(), (), 1, "error: there is no log 'in' at "),
        (line(), ("--conf", "nonsense"), 2, "--conf takes spark.NAME=VALUE, not 'nonsense'"),
    ],
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


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("raise ValueError('three')", "error: job 'line', vertex 'work': ValueError: three"),
        ("os._exit(1)", "error: job 'line' failed: a Python worker process died while it ran the job's code"),
    ],
    ids=["raises", "dies"],
)
def test_code_that_fails(shell: Shell, what: str, says: str) -> None:
    shell.fill("in", [1, 2, 3])
    shell.write("job.py", line(before=CODE.replace("{what}", what), task="work"))
    said = shell.process("run", "job.py", *RUN)
    assert said.code == 1
    assert says in said.err
    trace = (shell.home / "jobs" / "line" / "trace.txt").read_text()
    assert "Traceback (most recent call last)" in trace or "\tat " in trace, "the details are kept"
    assert shell.values("out") == []


@pytest.mark.parametrize(
    ("options", "master", "says"),
    [
        (("--master", "bogus"), "bogus", "Master must either be yarn or start with spark, k8s, or local"),
        (("--master", "local[x]"), "local[x]", "Could not parse Master URL: 'local[x]'"),
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
