"""A worker loads its job from its verified bundle and from nowhere else, and tells node from job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import pytest

from penstock.bundles.bundle_manifest import MANIFEST
from penstock.bundles.bundle_packer import pack
from penstock.bundles.unpacked_bundle import unpack
from penstock.cluster.worker_policy import WorkerDecision
from penstock.daemon.worker_folder import EXIT_FAILED, EXIT_REFUSED, WorkerConfig, read_exit
from penstock.errors import PenstockError, SettingError
from penstock.graph.job import Job
from penstock.worker.worker_lifecycle import Worker
from penstock.worker.worker_main import _load, _work
from support.settings import make_assignment

_JOB = """
import penstock as ps
job = ps.Job("words")
job.source("in", ps.MemorySource([1])) >> job.sink("out", ps.MemorySink())
"""


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def _instance(tmp_path: Path, entry: str, text: str = _JOB) -> WorkerConfig:
    code = tmp_path / "code"
    code.mkdir()
    (code / "words_of_bundle.py").write_text(text)
    (tmp_path / "outside_job.py").write_text(_JOB + f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    unpack(pack(code, entry="words_of_bundle.py"), tmp_path / "bundle")
    assignment = make_assignment("words", 1, 1, 1, "a" * 64, entry, "n1", 1, 1 << 30)
    return WorkerConfig("words", "n1", "h", 1, 1, "h:1", "/r", "k", "s", str(tmp_path / "bundle"), assignment)


@pytest.mark.parametrize(
    "entry", ["words_of_bundle.py", "words_of_bundle.py:job", "words_of_bundle.py:words"]
)
def test_the_job_of_the_bundle_is_loaded(tmp_path: Path, entry: str) -> None:
    assert _load(_instance(tmp_path, entry)).name == "words"


@pytest.mark.parametrize(
    "entry", ["{outside}/outside_job.py", "../outside_job.py", "{outside}/outside_job.py:job"]
)
def test_code_outside_the_bundle_is_refused_and_does_not_run(tmp_path: Path, entry: str) -> None:
    instance = _instance(tmp_path, entry.format(outside=tmp_path))
    with pytest.raises(SettingError, match="cannot be a file of a bundle"):
        _load(instance)
    assert not (tmp_path / "ran").exists()


class _Worker:
    """A worker that has to load its job, and does nothing else."""

    def __init__(self) -> None:
        self.refusals: list[str] = []

    def begin(self) -> None:
        return

    def run(self, job: Job) -> WorkerDecision:
        raise AssertionError(f"{job.name} could be loaded")

    def superseded(self, error: PenstockError) -> bool:
        return False

    def refuse(self, reason: str) -> None:
        self.refusals.append(reason)

    def close(self) -> None:
        return


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> _Worker:
    monkeypatch.setattr("penstock.worker.worker_main.install_signal_handlers", lambda worker: None)
    return _Worker()


def _end(tmp_path: Path, worker: _Worker, instance: WorkerConfig) -> tuple[int, str, str]:
    """Return the exit code of a worker that cannot load its job, its outcome, and the reason."""
    code = _work(tmp_path, cast(Worker, worker), instance)
    left = read_exit(tmp_path)
    assert left is not None
    return code, left.outcome, left.reason


_WRAPPED = """
try:
    import a_module_that_this_node_lacks
except ImportError as error:
    raise RuntimeError("install a_module_that_this_node_lacks") from error
"""


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("import a_module_that_this_node_lacks", "No module named 'a_module_that_this_node_lacks'"),
        ("from json import a_name_of_later", "cannot import name 'a_name_of_later'"),
        ("open('/data/of/other/nodes.csv')", "No such file or directory: '/data/of/other/nodes.csv'"),
        ("raise ConnectionRefusedError(111, 'Connection refused')", "Connection refused"),
        (_WRAPPED, "install a_module_that_this_node_lacks"),
    ],
)
def test_what_this_node_lacks_is_a_failure_that_another_node_may_not_have(
    tmp_path: Path, worker: _Worker, text: str, missing: str
) -> None:
    code, outcome, reason = _end(tmp_path, worker, _instance(tmp_path, "words_of_bundle.py", text + "\n"))
    assert (code, outcome, worker.refusals) == (EXIT_FAILED, "failed", [])
    assert reason.startswith("node n1 cannot load the job: ")
    assert missing in reason
    assert "\n" not in reason


@pytest.mark.parametrize(
    ("lost", "said"),
    [("words_of_bundle.py", "words_of_bundle.py is missing"), (MANIFEST, "not an unpacked bundle")],
)
def test_a_damaged_copy_of_the_bundle_is_a_failure_of_this_node(
    tmp_path: Path, worker: _Worker, lost: str, said: str
) -> None:
    instance = _instance(tmp_path, "words_of_bundle.py")
    (Path(instance.bundle) / lost).unlink()
    code, outcome, reason = _end(tmp_path, worker, instance)
    assert (code, outcome, worker.refusals) == (EXIT_FAILED, "failed", [])
    assert said in reason


@pytest.mark.parametrize(
    ("text", "entry", "said"),
    [
        ("x = (", "words_of_bundle.py", "line 1"),
        ("raise ValueError('odd')", "words_of_bundle.py", "ValueError: odd"),
        ("x = 1", "words_of_bundle.py", "defines no job"),
        ("import penstock as ps; job = ps.Job('words')", "words_of_bundle.py", "the job has no source"),
        (_JOB, "words_of_bundle.py:others", "has no job 'others'"),
        (_JOB, "others.py", "not among the files"),
        (_JOB.replace("words", "others"), "words_of_bundle.py", "defines job 'others', not 'words'"),
    ],
)
def test_what_is_the_same_on_every_node_is_refused(
    tmp_path: Path, worker: _Worker, text: str, entry: str, said: str
) -> None:
    code, outcome, reason = _end(tmp_path, worker, _instance(tmp_path, entry, text + "\n"))
    assert (code, outcome, worker.refusals) == (EXIT_REFUSED, "refused", [reason])
    assert said in reason
