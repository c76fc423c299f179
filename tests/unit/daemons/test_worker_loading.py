"""A worker loads its job from its verified bundle and from nowhere else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.bundles.packing import pack
from penstock.bundles.unpacking import unpack
from penstock.cluster.documents import Assignment
from penstock.daemons.instance import Instance
from penstock.daemons.worker import _load
from penstock.errors import SettingError

_JOB = """
import penstock as ps
job = ps.Job("words")
job.source("in", ps.MemorySource([1])) >> job.sink("out", ps.MemorySink())
"""


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def _instance(tmp_path: Path, entry: str) -> Instance:
    code = tmp_path / "code"
    code.mkdir()
    (code / "words_of_bundle.py").write_text(_JOB)
    (tmp_path / "outside_job.py").write_text(_JOB + f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    unpack(pack(code, entry="words_of_bundle.py"), tmp_path / "bundle")
    assignment = Assignment("words", 1, 1, 1, "a" * 64, entry, "n1", 1, 1 << 30)
    return Instance("words", "n1", "h", 1, 1, "h:1", "/r", "k", "s", str(tmp_path / "bundle"), assignment)


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
