"""The Spark session: shared, replaced when its settings differ, replaced when Java has died."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.waiting import DEADLINE

CODE = """
import os, sys
import penstock as ps
from pyspark import SparkContext

def job(**options):
    job = ps.Job("session", **options)
    say = job.task("say", lambda r: print("said", file=sys.stderr) or r)
    job.source("in", ps.MemorySource([1])) >> say >> job.sink("out", ps.MemorySink())
    return job

def java():
    return SparkContext._gateway.proc.pid

assert ps.run(job(), master="local[1]").records_out == 1
first = java()
assert ps.run(job(), master="local[1]").records_out == 1
assert java() == first, "the same settings share a session"
assert ps.run(job(spark={"spark.driver.memory": "1g"}), master="local[1]").records_out == 1
assert java() != first, "other settings get another Java"
assert SparkContext._active_spark_context.getConf().get("spark.driver.memory") == "1g"

def kill(report):
    SparkContext._gateway.proc.kill()

try:
    ps.run(job(spark={"spark.driver.memory": "1g"}), None, master="local[1]", on_progress=kill)
except ps.JobFailedError as error:
    print("failed:", error)
"""

AGAIN = """
assert ps.run(job(), master="local[1]").records_out == 1
print("replaced")
"""


@pytest.mark.parametrize("again", ["", pytest.param(AGAIN, marks=pytest.mark.full)], ids=["once", "again"])
def test_sessions_are_shared_and_replaced(again: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE + again], capture_output=True, text=True, check=False, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stderr
    assert "failed: job 'session' failed: Spark's Java process does not answer" in done.stdout
    assert "incubator" not in done.stderr
    assert "said\n" in done.stderr, "what users print in their tasks is not lost"
    assert ("replaced" in done.stdout) == bool(again)
