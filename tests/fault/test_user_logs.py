"""What the code of a job in a cluster prints and logs is in ``penstock logs``, within bounds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster, records_in, running_cluster

from penstock.log import Log, log_folder
from penstock.process_logs.user_output import FILE, OutputLimits
from penstock.record import Record
from support.engines import EITHER, SPARK
from support.waiting import DEADLINE, eventually

NAME = "talking"

JOB = """
import logging

import penstock as ps

print("the job is loaded")


def tell(record):
    if record.value == "flood":
        for number in range(20_000):
            print("number", number)
    else:
        print("told", record.value)
        logging.getLogger("my.code").error("thought %s", record.value)
    return record


class Keep(ps.StatefulTask):
    def update(self, key, values, state):
        print("kept", *values)
        return (state or 0) + 1, [(key, value) for value in values]


job = ps.Job("talking")
source = job.source("in", ps.LogSource("in"))
source >> job.task("tell", tell) >> job.task("keep", Keep()) >> job.sink("out", ps.LogSink("out"))
"""


@pytest.fixture(scope="module", params=EITHER)
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("cluster")
    with running_cluster(home, nodes=1, masters=1, servers=1, engine=request.param) as running:
        (home / "talking.py").write_text(JOB)
        Log.create(log_folder("in", home))
        running.cli("submit", str(home / "talking.py"), "--memory", "1g")
        yield running


def _say(cluster: Cluster, text: str) -> None:
    """Give the job a record, and wait until it is through."""
    Log.open(log_folder("in", cluster.home)).append([Record("k", text)])
    eventually(f"{text} is out", lambda: text in [record.value for record in records_in(cluster.home, "out")])


def _output(cluster: Cluster, *options: str) -> list[dict[str, Any]]:
    """Return what user code has said, by ``penstock logs``."""
    lines = map(json.loads, cluster.cli("logs", NAME, "-o", "json", *options).splitlines())
    return [line for line in lines if "stream" in line]


def test_print_and_logging_are_there_with_node_vertex_and_level(cluster: Cluster) -> None:
    _say(cluster, "one")
    found = {(line["event"], line["node"], line.get("vertex"), line["level"]) for line in _output(cluster)}
    assert found >= {
        ("the job is loaded", "n1", None, "info"),
        ("told one", "n1", "tell", "info"),
        ("thought one", "n1", "tell", "error"),
        ("kept one", "n1", "keep", "info"),
    }
    assert {line["event"] for line in _output(cluster, "--vertex", "keep")} == {"kept one"}
    assert {line["event"] for line in _output(cluster, "--level", "error")} == {"thought one"}
    shown = cluster.cli("logs", NAME, "--vertex", "tell").splitlines()
    assert any(line.endswith("n1 worker [tell] told one") for line in shown)


def test_they_are_followed(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "logs", NAME, "-f", "--vertex", "tell"]
    process = subprocess.Popen(
        command,
        env={**cluster.environment, "PENSTOCK_MASTER_URL": ",".join(cluster.urls())},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        _say(cluster, "while it is followed")
        # Who never sees it waits for ever: the limit of the whole test ends that.
        while "told while it is followed" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 0


def test_a_flood_is_bounded_and_what_was_dropped_is_counted(cluster: Cluster) -> None:
    _say(cluster, "flood")
    lines = _output(cluster)
    said = [line for line in lines if line["event"].startswith("number ") or line["event"] == "kept flood"]
    dropped = sum(line["dropped"] for line in lines if line["stream"] == "dropped")
    assert len(said) + dropped == 20_000 + 1, "all numbers, and what the next task prints of the record"
    assert dropped > 0
    folders = cluster.folder.glob("nodes/*/instances/*")
    sizes = [sum(path.stat().st_size for path in folder.glob(f"{FILE}*")) for folder in folders]
    assert 0 < max(sizes) <= OutputLimits.size
    _say(cluster, "after the flood")
    assert "told after the flood" in {line["event"] for line in _output(cluster, "--vertex", "tell")}


def test_nothing_of_it_is_in_the_file_of_what_java_prints(cluster: Cluster) -> None:
    [folder] = cluster.folder.glob("nodes/n1/instances/*")
    output = (folder / "output.log").read_text()
    assert "told" not in output
    assert "number" not in output
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600


SPARK_FUNCTION = """
import logging

import penstock as ps
from pyspark.sql.functions import udf


def shout(text):
    print("shouted", text)
    logging.getLogger("my.code").warning("heard %s", text)
    return text.upper()


def louder(frame):
    return frame.select(udf(shout, "string")("text").alias("text"))


job = ps.Job("talking")
source = job.source("in", ps.LogSource("in"), schema="text string")
louder = job.task("louder", ps.DataFrameTask(louder))
text = job.task("text", lambda record: record.value["text"])
source >> louder >> text >> job.sink("out", ps.LogSink("out"))
"""


@pytest.mark.full
def test_functions_of_spark_are_heard_without_a_vertex(tmp_path: Path) -> None:
    with running_cluster(tmp_path, nodes=1, masters=1, servers=1, engine=SPARK) as cluster:
        (tmp_path / "talking.py").write_text(SPARK_FUNCTION)
        Log.create(log_folder("in", tmp_path)).append([Record("k", {"text": "one"})])
        cluster.cli("submit", str(tmp_path / "talking.py"), "--memory", "1g")
        eventually("it is out", lambda: [record.value for record in records_in(tmp_path, "out")] == ["ONE"])
        said = {(line["event"], line["node"], line.get("vertex"), line["level"]) for line in _output(cluster)}
        assert said == {("shouted one", "n1", None, "info"), ("heard one", "n1", None, "warning")}
