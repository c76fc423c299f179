"""``penstock place`` as a user meets it, with strategies of the user's that go wrong in every way."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.main import command_line

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster.json"
MINE = """
import mmap, os, sys, threading

class Last:
    def place(self, snapshot, demands):
        places = {task.id: task.current for task in snapshot.tasks if task.current}
        for task in demands:
            able = [n for n in snapshot.nodes if snapshot.status(n) == "NORMAL"]
            able = [n.name for n in able if all(n.labels.get(k) == v for k, v in task.labels.items())]
            able = [name for name in able if not task.nodes or name in task.nodes]
            group = [other.id for other in snapshot.tasks if task.apart and other.apart == task.apart]
            taken = {places.get(other) for other in group}
            places[task.id] = [name for name in able if name not in taken][-1]
        return places

class Raises:
    def place(self, snapshot, demands):
        raise RuntimeError("no idea")

class Loops:
    def place(self, snapshot, demands):
        while True:
            pass

class Nonsense:
    def place(self, snapshot, demands):
        return {"nobody": "nowhere"}

class Number:
    def place(self, snapshot, demands):
        return 42

class Talks(Last):
    def place(self, snapshot, demands):
        for _ in range(100_000):
            print("talk" * 10)
        return super().place(snapshot, demands)

class Eats(Last):
    def place(self, snapshot, demands):
        much = []
        while True:
            much.append(mmap.mmap(-1, 256 << 20))

class Forks(Last):
    def place(self, snapshot, demands):
        if os.fork() == 0:
            while True:
                pass
        return super().place(snapshot, demands)

class Detached(Last):
    def place(self, snapshot, demands):
        threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()
        return super().place(snapshot, demands)
"""


def _place(
    folder: Path, *arguments: str, text: str | None = None, file: str = str(EXAMPLE)
) -> subprocess.CompletedProcess[str]:
    asked = ["place", "--file", file, *arguments]
    with contextlib.chdir(folder):
        done = CliRunner(env={"PENSTOCK_HOME": str(folder)}).invoke(
            command_line(["place"]), asked, input=text, catch_exceptions=False
        )
    return subprocess.CompletedProcess(asked, done.exit_code, done.stdout, done.stderr)


def _json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def test_both_decisions_are_printed_as_json_and_the_same_from_standard_input(tmp_path: Path) -> None:
    first = _json(_place(tmp_path, "-o", "json"))
    again = _json(_place(tmp_path, "-o", "json", text=EXAMPLE.read_text(), file="-"))
    assert first == again
    assert first["placement"]["strategy"] == "balanced"
    assert set(first["placement"]["matrix"]) == {
        task["id"] for task in json.loads(EXAMPLE.read_text())["tasks"]
    }
    assert first["placement"]["unplaced"] == {}
    assert first["backup"]["method"] == "improved"
    assert [choice["task"] for choice in first["backup"]["choices"]] == [
        "counts/driver",
        "faces/driver",
        "vehicles/driver",
    ]


def test_people_see_the_matrix_the_costs_the_reasons_and_the_backups(tmp_path: Path) -> None:
    done = _place(tmp_path)
    assert done.returncode == 0, done.stderr
    for text in (
        "placement by balanced",
        "imbalance",
        "cross_rack",
        "the task is for core-1 only",
        "it lacks the label camera=yes",
        "it is OVERLOADED",
        "backups by improved",
        "stored on",
    ):
        assert text in done.stdout


def test_what_finds_no_node_is_told_with_its_reason_and_has_no_backup(tmp_path: Path) -> None:
    content = json.loads(EXAMPLE.read_text())
    content["tasks"].append({"id": "giant/driver", "cpu": 100, "snapshot": 5})
    answer = _json(_place(tmp_path, "-o", "json", text=json.dumps(content), file="-"))
    assert "100 cores asked for" in answer["placement"]["unplaced"]["giant/driver"]
    assert "giant/driver" not in {choice["task"] for choice in answer["backup"]["choices"]}
    told = _place(tmp_path, text=json.dumps(content), file="-").stdout
    assert "without a node" in told


@pytest.mark.parametrize("method", ["algorithm1", "cbc", "highs"])
def test_every_method_decides(tmp_path: Path, method: str) -> None:
    answer = _json(_place(tmp_path, "-o", "json", "--method", method, "--failures", "2", "--seconds", "20"))
    assert answer["backup"]["method"] == method
    assert answer["backup"]["failures"] == 2
    assert len(answer["backup"]["choices"]) + len(answer["backup"]["unprotected"]) == 3


def test_only_the_asked_task_is_explained(tmp_path: Path) -> None:
    answer = _json(_place(tmp_path, "-o", "json", "--explain", "faces/driver"))
    assert list(answer["placement"]["rejected"]) == ["faces/driver"]
    unknown = _place(tmp_path, "--explain", "nobody")
    assert unknown.returncode == 4
    assert "there is no task 'nobody'" in unknown.stderr


def test_rebalancing_may_move_what_runs(tmp_path: Path) -> None:
    node = {"cores": 4, "memory": 1 << 30}
    tasks = [{"id": f"t{number}", "cpu": 1, "memory": 1 << 20, "current": "a"} for number in range(4)]
    text = json.dumps({"nodes": [{"name": name, **node} for name in "ab"], "tasks": tasks})
    still = _json(_place(tmp_path, "-o", "json", text=text, file="-"))
    moved = _json(_place(tmp_path, "-o", "json", "--rebalance", text=text, file="-"))
    assert still["placement"]["moves"] == {}
    assert len(moved["placement"]["moves"]) == 2
    assert all(move == {"from": "a", "to": "b"} for move in moved["placement"]["moves"].values())


def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path) -> None:
    wrong = EXAMPLE.read_text().replace('"cpu": 1', '"cpu": -1', 1)
    done = _place(tmp_path, text=wrong, file="-")
    assert done.returncode == 1
    assert "tasks[2].cpu: expected a number from 0 on, found -1" in done.stderr
    assert "Traceback" not in done.stderr
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in _place(tmp_path, file="binary").stderr
    assert "No such file" in _place(tmp_path, file="missing.json").stderr
    unknown = _place(tmp_path, "--strategy", "fastest")
    assert unknown.returncode == 1
    assert "there is no strategy 'fastest'" in unknown.stderr
    assert _place(tmp_path, "--method", "guess").returncode == 2
    assert _place(tmp_path, "--failures", "0").returncode == 2


@pytest.mark.parametrize("name", ["Last", "Talks", "Detached", "Forks"])
def test_a_strategy_of_the_users_is_used(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    answer = _json(_place(tmp_path, "-o", "json", "--strategy", f"mine:{name}", "--seconds", "30"))
    assert answer["placement"]["refused"] == ""
    assert answer["placement"]["strategy"] == f"mine:{name}"
    assert answer["placement"]["matrix"]["counts/driver"] == "core-1"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Raises", "it raised RuntimeError: no idea"),
        ("Loops", "it did not answer within 3 s"),
        ("Nonsense", "there is no task 'nobody'"),
        ("Number", "it returned int instead of a Matrix"),
        ("Eats", "Cannot allocate memory"),
        ("Missing", "has no attribute 'Missing'"),
    ],
)
def test_a_strategy_that_goes_wrong_is_refused_and_the_default_used(
    tmp_path: Path, name: str, reason: str
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    started = time.monotonic()
    seconds = "3" if name == "Loops" else "30"
    answer = _json(_place(tmp_path, "-o", "json", "--strategy", f"mine:{name}", "--seconds", seconds))
    assert time.monotonic() - started < 60.0
    assert reason in answer["placement"]["refused"]
    assert answer["placement"]["strategy"] == "balanced"
    assert answer["placement"]["matrix"] == _json(_place(tmp_path, "-o", "json"))["placement"]["matrix"]


def test_people_are_told_that_a_strategy_was_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    told = _place(tmp_path, "--strategy", "mine:Raises", "--seconds", "30").stdout
    assert "strategy mine:Raises was not used, balanced was: " in told
    assert "no idea" in told


def test_the_same_file_gives_the_same_decision_in_any_process(tmp_path: Path) -> None:
    """Sets and dictionaries of texts have another order with another hash seed: it must not matter."""
    answers = set()
    for seed in ("0", "1", "4242"):
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", "place", "--file", str(EXAMPLE), "-o", "json"],
            cwd=tmp_path,
            env={**os.environ, "PENSTOCK_HOME": str(tmp_path), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        answers.add(done.stdout)
    assert len(answers) == 1


def test_the_strategy_of_the_guide_does_what_the_guide_says(tmp_path: Path) -> None:
    guide = (EXAMPLE.parents[1] / "docs" / "how-to" / "write-a-strategy.md").read_text()
    (tmp_path / "roomiest.py").write_text(guide.partition("```python")[2].partition("```")[0])
    told = "it has a task of the group 'counts', whose tasks run apart"
    asked = ("-o", "json", "--strategy", "roomiest:Roomiest", "--seconds", "30")
    assert told in _json(_place(tmp_path, *asked))["placement"]["refused"]
    content = json.loads(EXAMPLE.read_text())
    for task in content["tasks"]:
        task.pop("apart", None)
    used = _json(_place(tmp_path, *asked, text=json.dumps(content), file="-"))
    assert used["placement"]["strategy"] == "roomiest:Roomiest"
