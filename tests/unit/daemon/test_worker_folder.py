"""The folder of a worker."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from penstock.cluster.assignment_documents import ExecutorSlot
from penstock.cluster.worker_documents import WorkerInfo
from penstock.daemon.worker_folder import (
    WorkerConfig,
    WorkerExit,
    read_exit,
    read_worker_config,
    write_exit,
    write_heartbeat,
)
from penstock.errors import SettingError
from support.settings import make_assignment
from support.worker_files import read_heartbeat, write_worker_config

ASSIGNMENT = make_assignment("job", 1, 2, 3, "b", "job.py", "n1", 1, 1, (ExecutorSlot(1, "n2", 1, 5),))
INSTANCE = WorkerConfig(
    "job", "n1", "127.0.0.1", 2, 4, "h:1", "/r", "/keys", "/storage", "/bundle", ASSIGNMENT
)


def test_an_instance_reads_back_as_it_was_and_is_its_owners_alone(tmp_path: Path) -> None:
    write_worker_config(tmp_path, INSTANCE)
    assert read_worker_config(tmp_path) == INSTANCE
    assert (tmp_path / "instance.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"job": 1}'])
def test_what_says_not_what_to_run_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "instance.json").write_text(text)
    with pytest.raises(SettingError, match=r"instance\.json is not the configuration of a worker"):
        read_worker_config(tmp_path)


def test_a_heartbeat_says_how_a_worker_does_and_when(tmp_path: Path) -> None:
    assert read_heartbeat(tmp_path) is None
    info = WorkerInfo("job", 2, 4, "n1", 77, "running", 5.0)
    write_heartbeat(tmp_path, info)
    found = read_heartbeat(tmp_path)
    assert found is not None
    assert found[0] == info
    assert found[1] == (tmp_path / "heartbeat").stat().st_mtime
    before = time.monotonic()
    write_heartbeat(tmp_path, info)
    said = json.loads((tmp_path / "heartbeat").read_text())["monotonic"]
    assert before <= said <= time.monotonic(), "by the clock that nobody sets"
    (tmp_path / "heartbeat").write_text("{")
    assert read_heartbeat(tmp_path) is None


def test_the_first_word_of_an_end_stands(tmp_path: Path) -> None:
    assert read_exit(tmp_path) is None
    write_exit(tmp_path, "failed", "it broke")
    write_exit(tmp_path, "stopped", "asked to")
    assert read_exit(tmp_path) == WorkerExit("failed", "it broke")
    assert [path.name for path in tmp_path.iterdir()] == ["exit.json"]
