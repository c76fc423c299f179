"""A job's file is read as it is, and not as it was a moment ago."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from penstock.errors import SettingError
from penstock.graph.job_loader import load_job

FILE = "import penstock as ps\njob = ps.Job({name!r})\n"


def test_a_file_of_the_same_size_and_second_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a running job is told to read its file again right after it was started."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "edited_job.py"
    names = []
    for name in ("first", "other"):
        file.write_text(FILE.format(name=name))
        os.utime(file, (1_700_000_000, 1_700_000_000))
        names.append(load_job(str(file)).name)
        # What a worker that imports the file leaves behind.
        spec = importlib.util.spec_from_file_location("edited_job", file)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert names == ["first", "other"]


def test_what_is_no_python_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.txt").write_text(FILE.format(name="job"))
    with pytest.raises(SettingError, match="is not a Python file"):
        load_job(str(tmp_path / "job.txt"))
