"""The Spark session: shared, replaced when its settings differ, replaced when Java has died."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps
from support.running import Engine
from support.waiting import DEADLINE, eventually

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

assert ps.run(job(), master="local[1]").records_out == 1
SparkContext._gateway.shutdown()
assert SparkContext._gateway.proc.poll() is None, "the process is still there"
assert ps.run(job(), master="local[1]").records_out == 1
print("replaced")

from penstock.spark import spark_session as session
finish = session.keep_java_loss_quiet

def kill_and_ask(context):
    SparkContext._gateway.proc.kill()
    SparkContext._gateway.proc.wait()
    context._jvm.System.nanoTime()

session.keep_java_loss_quiet = kill_and_ask
try:
    ps.run(job(spark={"spark.driver.memory": "1g"}), master="local[1]")
except ps.PenstockError as error:
    print("not started:", error)
session.keep_java_loss_quiet = finish
assert ps.run(job(), master="local[1]").records_out == 1
print("started again")
"""


@pytest.mark.full
@pytest.mark.also_on_spark
def test_sessions_are_shared_and_replaced() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * DEADLINE,  # It starts Spark six times.
    )
    assert done.returncode == 0, done.stderr
    assert "failed: job 'session' failed: Spark's Java process no longer responds" in done.stdout
    assert "incubator" not in done.stderr
    assert "said\n" in done.stderr, "what users print in their tasks is not lost"
    assert "replaced" in done.stdout
    assert "not started: job 'session' cannot start: Spark's Java process no longer responds" in done.stdout
    assert "started again" in done.stdout


def test_what_the_session_of_the_tests_prints_is_kept(spark: Engine, spark_says: Path) -> None:
    """Other tests look there for what no user may see: it must not be empty for another reason."""
    job = ps.Job("printing")
    say = job.task("say", lambda r: print("said by a worker", file=sys.stderr) or r)
    job.source("in", ps.MemorySource([1])) >> say >> job.sink("out", ps.MemorySink())
    spark.run(job)
    eventually("the words of the worker", lambda: "said by a worker\n" in spark_says.read_text())
