"""Handles of running jobs, and changing them in place: each record once, by the old code or by the new."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.log import Log, log_folder
from support import local_penstock
from support.engines import EITHER
from support.running import MASTER, Engine
from support.waiting import DEADLINE, eventually


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    Log.create(log_folder("in"))
    return tmp_path


def _append(*items: Any, log: str = "in") -> None:
    Log.open(log_folder(log)).append([ps.Record(key, value) for key, value in items])


def _read(name: str) -> Counter[tuple[Any, Any]]:
    try:
        log = Log.open(log_folder(name))
    except ps.LogError:  # Its folder is there a moment before the log is.
        return Counter()
    return Counter(
        (r.key, r.value) for p in range(log.partitions) for records in log.read(p, 0) for r in records
    )


class Running(ps.StatefulTask):
    """Numbers the values of each key, so that a lost or a doubled one is seen."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        seen = state or 0
        return seen + len(values), [(key, (seen + n, value)) for n, value in enumerate(values, start=1)]


def _job(**options: Any) -> ps.Job:
    job = ps.Job("changing", **options)
    source = job.source("in", ps.LogSource("in", max_records_per_batch=5000))
    tag = job.task("tag", lambda r: (r.key, ("old", r.value)))
    source >> tag >> job.task("running", Running()) >> job.sink("out", ps.LogSink("out"))
    return job


class Feeder(threading.Thread):
    """Appends numbers to the input for as long as it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self._enough = threading.Event()

    def run(self) -> None:
        while not self._enough.wait(0.05):
            _append(*((n % 7, n) for n in range(self.count, self.count + 20)))
            self.count += 20

    def end(self) -> None:
        self._enough.set()
        self.join()


@pytest.fixture
def feeder(home: Path) -> Iterator[Feeder]:
    feeder = Feeder()
    feeder.start()
    try:
        yield feeder
    finally:
        feeder.end()


def _some_batches(handle: ps.Handle, count: int = 2) -> None:
    goal = handle.report.batches + count
    eventually(f"batch {goal}", lambda: handle.report.batches >= goal, meanwhile=handle.check)


def _check_exact(out: Counter[tuple[Any, Any]], count: int) -> None:
    assert Counter(value for _, (_, (_, value)) in out.elements()) == Counter(range(count))
    per_key = Counter(n % 7 for n in range(count))
    assert Counter((key, n) for key, (n, _) in out.elements()) == Counter(
        (key, n + 1) for key, total in per_key.items() for n in range(total)
    )


def test_a_job_is_changed_while_records_come_in(feeder: Feeder, spark: Engine) -> None:
    with spark.start(_job(parallelism=2)) as handle:
        assert handle.running
        _some_batches(handle)
        wider = handle.reconfigure(parallelism=3)
        assert wider.changes == ("parallelism: 3 instead of 2",)
        assert handle.job.parallelism == 3
        _some_batches(handle)
        coded = handle.reconfigure(tasks={"tag": lambda r: (r.key, ("new", r.value))})
        assert coded.changes == ("other code in 'tag'",)
        assert coded.batch > wider.batch > 0
        _some_batches(handle)
        served = handle.reconfigure(qos={"priority": 8}, vertex_qos={"tag": ps.QoS(max_latency=1.0)})
        assert handle.job.qos == ps.QoS(priority=8)
        assert len(served.changes) == 2
        _some_batches(handle)
        with pytest.raises(ps.IncompatibleJobError, match="Spark settings"):
            handle.reconfigure(_job(spark={"spark.sql.shuffle.partitions": 3}))
        _some_batches(handle)
        feeder.end()
        assert handle.wait("drained", timeout=DEADLINE)
        assert handle.drained()
        for changed in (wider, coded, served):
            print(f"restart in place: {changed.seconds:.3f} s")
            assert changed.seconds < 30.0, "a second on an idle machine"
    assert not handle.running
    assert handle.report.records_in == handle.report.records_out == feeder.count
    assert handle.report.vertices["tag"].records_in == feeder.count
    out = _read("out")
    _check_exact(out, feeder.count)
    words = [(value, word) for _, (_, (word, value)) in out.elements()]
    switched = min(value for value, word in words if word == "new")
    assert {word for value, word in words if value < switched} == {"old"}
    assert {word for value, word in words if value >= switched} == {"new"}


def test_what_cannot_go_on_is_refused_with_all_reasons_and_the_job_runs_on(
    feeder: Feeder, engine: Engine
) -> None:
    wrong = ps.Job("changing", parallelism=2)
    wrong.source("other", ps.LogSource("in")) >> wrong.sink("out", ps.LogSink("out"))
    misnamed = _job()
    misnamed.name = "another"
    lost = ps.Job("changing")
    lost.source("in", ps.LogSource("nowhere")) >> lost.sink("out", ps.LogSink("out"))
    lock = threading.Lock()
    refused: list[tuple[type[Exception], str, Callable[[ps.Handle], Any]]] = [
        (ps.IncompatibleJobError, "source 'in' was removed", lambda h: h.reconfigure(wrong)),
        (ps.IncompatibleJobError, "state of vertex 'running'", lambda h: h.reconfigure(wrong)),
        (ps.IncompatibleJobError, "its name is 'another'", lambda h: h.reconfigure(misnamed)),
        (ps.LogError, "nowhere", lambda h: h.reconfigure(lost)),
        (ps.IncompatibleJobError, "state of Running", lambda h: h.reconfigure(tasks={"running": ps.Count()})),
        (ps.GraphError, "parallelism", lambda h: h.reconfigure(parallelism=0)),
        (ps.GraphError, "priority", lambda h: h.reconfigure(qos={"priority": 99})),
        (ps.SettingError, "no vertex 'tug'", lambda h: h.reconfigure(tasks={"tug": abs})),
        (ps.SettingError, "'in' is a source", lambda h: h.reconfigure(tasks={"in": abs})),
        (ps.SettingError, "either", lambda h: h.reconfigure()),
        (ps.SettingError, "either", lambda h: h.reconfigure(_job(), parallelism=2)),
        (ps.TaskError, "'tag'.*cannot be sent", lambda h: h.reconfigure(tasks={"tag": lambda r: lock})),
    ]
    with engine.start(_job(parallelism=2)) as handle:
        _some_batches(handle)
        job = handle.job
        for kind, words, change in refused:
            with pytest.raises(kind, match=f"(?s){words}"):
                change(handle)
            assert handle.running
            assert handle.job is job
        _some_batches(handle)
        feeder.end()
        assert handle.wait("drained", timeout=DEADLINE)
    with pytest.raises(ps.SettingError, match="is not running: start it"):
        handle.reconfigure(parallelism=3)
    _check_exact(_read("out"), feeder.count)


class Reluctant(ps.LogSink):
    """Cannot be made ready."""

    def prepare(self) -> None:
        raise ps.LogError("no room for another log")


def test_the_old_job_goes_on_when_the_new_one_does_not_start(feeder: Feeder, engine: Engine) -> None:
    def job(sink: ps.Sink, parallelism: int | None) -> ps.Job:
        job = _job(parallelism=parallelism)
        job.vertex("tag") >> job.sink("more", sink)
        return job

    with engine.start(_job()) as handle:
        _some_batches(handle)
        with pytest.raises(ps.LogError, match="no room"):
            handle.reconfigure(job(Reluctant("more"), 3))
        assert handle.job.parallelism is None
        _some_batches(handle)
        handle.reconfigure(job(ps.LogSink("more"), 3))
        _some_batches(handle)
        feeder.end()
        assert handle.wait("drained", timeout=DEADLINE)
    _check_exact(_read("out"), feeder.count)
    assert 0 < _read("more").total() < feeder.count


def test_records_on_their_way_are_let_out_before_the_graph_changes(feeder: Feeder, engine: Engine) -> None:
    """A loop that is never empty while records come in would otherwise never be the moment to change."""

    def job(branch: bool) -> ps.Job:
        job = ps.Job("looping", max_iterations=20)
        source = job.source("in", ps.LogSource("in", max_records_per_batch=100))
        keyed = job.task("keyed", Running())
        source >> job.task("new", lambda r: (r.value, 1)) >> keyed >> keyed
        keyed >> job.sink("out", ps.LogSink("out"))
        if branch:
            keyed >> job.sink("branch", ps.LogSink("branch"))
        return job

    with engine.start(job(branch=False)) as handle:
        _some_batches(handle)
        done = handle.reconfigure(job(branch=True))
        assert "vertex 'branch' was added" in done.changes
        _some_batches(handle)
        feeder.end()
        assert handle.wait("drained", timeout=DEADLINE)
    rounds = Counter((key, n) for key, (n, _) in _read("out").elements())
    assert rounds == Counter((key, n) for key in range(feeder.count) for n in range(1, 22))
    branched = Counter((key, n) for key, (n, _) in _read("branch").elements())
    new = {key for key, _ in branched}
    assert 0 < len(new) < feeder.count
    assert branched == Counter((key, n) for key in new for n in range(1, 22)), "whole ways only"


def test_errors_reach_whoever_waits_or_stops(home: Path, engine: Engine) -> None:
    def job() -> ps.Job:
        job = ps.Job("failing")
        source = job.source("in", ps.LogSource("in"))
        source >> job.task("bad", lambda r: 1 // r.value) >> job.sink("out", ps.LogSink("out"))
        return job

    with engine.start(job()) as waiting:
        assert not waiting.wait(None, timeout=0.1), "it runs, and nobody has stopped it"
        assert waiting.wait("drained", timeout=DEADLINE)
        _append((None, 0))
        with pytest.raises(ps.TaskError, match="'bad'"):
            waiting.wait(None, timeout=DEADLINE)
        assert not waiting.running
    stopping = engine.start(job())
    eventually("the end of the job", lambda: not stopping.running)
    with pytest.raises(ps.TaskError, match="'bad'"):
        stopping.stop()
    stopping.stop()
    assert stopping.wait(None), "a job that was stopped has ended"
    for arguments in (("later",), (-1,), ("drained", -1)):
        with pytest.raises(ps.SettingError):
            stopping.wait(*arguments)


def test_two_jobs_run_side_by_side_and_one_thread_waits_while_another_changes(
    feeder: Feeder, spark: Engine
) -> None:
    other = ps.Job("other")
    other.source("in", ps.LogSource("in")) >> other.sink("out", ps.LogSink("copy"))
    with spark.start(_job()) as first, spark.start(other) as second:
        with pytest.raises(ps.SettingError, match=r"other settings.*2 jobs"):
            ps.start(_job(), master="local[1]", folder=str(log_folder("in").parent / "elsewhere"))
        with pytest.raises(ps.JobFailedError, match="running already"):
            spark.start(_job())
        waited: list[bool] = []
        waiter = threading.Thread(target=lambda: waited.append(first.wait(None, timeout=DEADLINE)))
        waiter.start()
        first.reconfigure(parallelism=3)
        _some_batches(first)
        feeder.end()
        for handle in (first, second):
            assert handle.wait("drained", timeout=DEADLINE)
        first.stop()
        waiter.join(DEADLINE)
        assert waited == [True]
        assert second.running
    _check_exact(_read("out"), feeder.count)
    assert _read("copy") == Counter((n % 7, n) for n in range(feeder.count))


class Noting(ps.LogSource):
    """Writes down how far it was read for good."""

    def __init__(self, notes: Path, log: str = "in") -> None:
        super().__init__(log)
        self.notes = str(notes)

    def committed(self, position: dict[str, int], reader: str) -> None:
        with Path(self.notes).open("a") as file:
            file.write(f"{reader} {position['0']}\n")
        if position["0"] > 2:
            raise OSError("nobody takes notes any more")


def test_a_source_is_told_how_far_it_was_read(home: Path, engine: Engine) -> None:
    job = ps.Job("told")
    job.source("in", Noting(home / "notes")) >> job.sink("out", ps.LogSink("out"))
    _append(("a", 1), ("b", 2))
    engine.run(job)
    assert (home / "notes").read_text() == "told.in 2\n"
    _append(("c", 3))
    with pytest.raises(ps.ConnectorError, match=r"'in'.*takes notes"):
        engine.run(job)
    assert _read("out").total() == 3, "the batch has happened"


FILE = """
import penstock as ps
job = ps.Job("reloaded")
source = job.source("in", ps.LogSource("in"))
source >> job.task("{task}", lambda r: (r.key, "{word}")) >> job.task("count", {count}) >> job.sink(
    "out", ps.LogSink("out")
)
"""


@pytest.mark.parametrize("engine_name", EITHER)
def test_a_signal_makes_the_command_line_read_its_file_again(home: Path, engine_name: str) -> None:
    file = home / "reloaded.py"
    file.write_text(FILE.format(task="say", word="old", count="ps.Reduce(max)"))
    _append(("a", 1))
    said = home / "said"
    with said.open("w") as stderr:
        process = subprocess.Popen(
            [*local_penstock.command(engine_name), "run", str(file), "--master", MASTER],
            env=local_penstock.environment(),
            stderr=stderr,
            start_new_session=True,
        )

    def waits_for(words: str) -> None:
        eventually(words, lambda: words in said.read_text(), meanwhile=runs)

    def runs() -> None:
        assert process.poll() is None, said.read_text()

    try:
        eventually("the first record", lambda: _read("out") == Counter([("a", "old")]), meanwhile=runs)
        file.write_text(FILE.format(task="say", word="refused", count="ps.Count()"))
        process.send_signal(signal.SIGHUP)
        waits_for("not changed")
        waits_for("has the state of Reduce, which Count cannot read")
        file.write_text(FILE.format(task="said", word="there", count="ps.Reduce(max)"))
        process.send_signal(signal.SIGHUP)
        waits_for("changed from batch 1 on")
        _append(("b", 1))
        both = Counter([("a", "old"), ("b", "there")])
        eventually("the second record", lambda: _read("out") == both, meanwhile=runs)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0, said.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
