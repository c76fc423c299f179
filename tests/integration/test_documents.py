"""The README and the tutorials, typed from top to bottom: what a reader does works, and shows what is shown.

Without Spark in ``make test``, on the workers and the ``penstock run`` of tests; on Spark in ``make
test-full``, where everything is typed as it stands.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.local.local_cluster import address_fault
from penstock.processes.process_control import OsProcesses
from support import lab_up, local_penstock
from support.documents import Command, NotTyped, Step, steps_of
from support.engines import EITHER, LOCAL, SPARK
from support.running import MASTER
from support.typing_session import Session, penstock_command

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/tutorial/tour.md")
LONGER = tuple(f"docs/tutorial/{name}.md" for name in ("first-job", "first-cluster", "loops", "windows"))
"""Pages that are typed in ``make test-full`` only."""
LAB = json.dumps({"idle": True, "engine": LOCAL})
HOSTS = [f"127.0.0.{number}" for number in range(1, 5)]
LATER = {
    "python -m pytest": "it needs Spark",
    "penstock simulate": "it takes a minute of a processor",
}
"""Beginnings of commands that are typed in ``make test-full`` only, and why."""


def _free_base() -> int:
    """Find ports for a cluster that nobody has, on the addresses of all its nodes."""
    bases = range(10_000, 11_900, 60)
    for base in random.sample(bases, len(bases)):
        if not any(address_fault(host, base + number) for host in HOSTS for number in range(60)):
            return base
    raise AssertionError("this machine has no ports left")


@pytest.fixture(params=EITHER)
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def session(tmp_path: Path, engine_name: str) -> Iterator[Session]:
    folder, home, base = tmp_path / "penstock", tmp_path / "home", _free_base()
    folder.mkdir()
    shutil.copytree(ROOT / "examples", folder / "examples")
    up = penstock_command([]) if engine_name == SPARK else [sys.executable, lab_up.__file__, LAB]

    def penstock(arguments: list[str]) -> list[str]:
        if arguments[0] == "up":
            # A busy machine may take longer than people would wait.
            return [*up, *arguments, "--port", str(base), "--timeout", "240"]
        if arguments[0] == "doctor":
            return penstock_command([*arguments, "--port", str(base)])
        if arguments[0] == "run":
            # The pages show the segments and files of two cores.
            cores = ["--master", MASTER] if engine_name == SPARK else []
            return [*local_penstock.command(engine_name), *arguments, *cores]
        return penstock_command(arguments)

    def python(arguments: list[str]) -> list[str]:
        on_spark = engine_name == SPARK or arguments[0] == "-m"
        return [*([sys.executable] if on_spark else local_penstock.command(LOCAL)), *arguments]

    environment = {**local_penstock.environment(), "PENSTOCK_HOME": str(home)}
    yield Session(folder, home, penstock, python, environment)
    processes = OsProcesses()
    processes.signal(home / "cluster" / "up" / "keeper", signal.SIGKILL)
    for place in processes.below(home):
        processes.kill_all(place)


def _text(step: Step) -> str:
    return step.text if isinstance(step, Command) else ""


def _type(page: str, session: Session, engine: str) -> None:
    for step in steps_of((ROOT / page).read_text()):
        later = [reason for begin, reason in LATER.items() if _text(step).startswith(begin)]
        session.do(NotTyped(step.line, (_text(step),), later[0]) if later and engine == LOCAL else step)
    print("not typed:", *session.not_typed, sep="\n  ")


@pytest.mark.parametrize("page", [*PAGES, *(pytest.param(page, marks=pytest.mark.full) for page in LONGER)])
def test_a_page_is_typed_from_top_to_bottom(page: str, session: Session, engine_name: str) -> None:
    _type(page, session, engine_name)
    assert OsProcesses().below(session.home) == [], "a reader is left without processes"


def test_every_tutorial_is_among_them() -> None:
    found = {str(page.relative_to(ROOT)) for page in (ROOT / "docs" / "tutorial").glob("*.md")}
    assert {*PAGES, *LONGER} == {"README.md", *found}


@pytest.mark.parametrize("page", ["README.md", *sorted(os.listdir(ROOT / "docs" / "tutorial"))])
def test_what_is_not_typed_has_a_reason_that_is_known_here(page: str) -> None:
    path = ROOT / page if page == "README.md" else ROOT / "docs" / "tutorial" / page
    skipped = [step for step in steps_of(path.read_text()) if isinstance(step, NotTyped)]
    assert [(step.commands, step.reason) for step in skipped] == []
