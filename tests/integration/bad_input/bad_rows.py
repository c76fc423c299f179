"""What the tables of bad input have in common: a row, and a command line that keeps its manners."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.main import command_line
from penstock.log import Log, log_folder
from penstock.record import Record
from support import local_penstock
from support.engines import SPARK
from support.running import MASTER
from support.waiting import DEADLINE

IMPORT = "import penstock as ps\n"

LINE = """
job = ps.Job("{name}"{options})
source = job.source("in", {source})
task = job.task("work", {task}{task_options})
sink = job.sink("out", {sink})
{flow}
"""


def line(
    name: str = "line",
    *,
    source: str = 'ps.LogSource("in")',
    task: str = "lambda r: r",
    sink: str = 'ps.LogSink("out")',
    options: str = "",
    task_options: str = "",
    before: str = "",
    flow: str = "source >> task >> sink",
    after: str = "",
) -> str:
    """Return the text of a file with a job of three vertices, in which one thing can be wrong."""

    def comma(words: str) -> str:
        return f", {words}" if words else ""

    job = LINE.format(
        name=name,
        source=source,
        task=task,
        sink=sink,
        options=comma(options),
        task_options=comma(task_options),
        flow=flow,
    )
    return f"{IMPORT}{before}\n{job}{after}\n"


@dataclass(frozen=True)
class Row:
    """One thing that is wrong, and what is to be said of it."""

    name: str
    file: str
    """The text of the job's file."""
    says: tuple[str, ...]
    """What the error says, word for word."""
    code: str | None = None
    """The code of the problem, where it is one of the graph."""
    command: tuple[str, ...] = ("explain",)
    exit_code: int = 1


def rows(table: Iterable[Row]) -> pytest.MarkDecorator:
    """Make a test of each row of a table."""
    listed = list(table)
    assert len({row.name for row in listed}) == len(listed), "names tell rows apart"
    return pytest.mark.parametrize("row", listed, ids=lambda row: row.name)


@dataclass(frozen=True)
class Said:
    """What a command has said, and how it ended."""

    code: int
    out: str
    err: str

    def one_line(self) -> str:
        """Everything on standard error, without the box that is drawn around wrong usage."""
        return " ".join(self.err.replace("│", " ").split())


def check_manners(text: str) -> None:
    """Refuse what no user's mistake may show: Python's traceback or Java's stack."""
    assert "Traceback (most recent call last)" not in text, text
    assert "\tat " not in text, text
    assert "org.apache.spark" not in text, text


class Shell:
    """Runs ``penstock`` in a home of its own, in this process or in another."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def write(self, name: str, text: str) -> str:
        """Write a file and return its path."""
        path = self.home / name
        path.write_text(text)
        return str(path)

    def run(self, *arguments: str, stdin: str | bytes = "") -> Said:
        """Run a command in this process."""
        result = CliRunner().invoke(command_line(arguments), list(arguments), input=stdin)
        if not (result.exception is None or isinstance(result.exception, SystemExit)):
            raise AssertionError(f"the command line let {result.exception!r} through") from result.exception
        check_manners(result.output)
        return Said(result.exit_code, result.stdout, result.stderr)

    def process(self, *arguments: str, before: str = "", engine: str = SPARK) -> Said:
        """Run a command as a process of its own; ``before`` is Python that it runs first."""
        module = "penstock.cli.main" if engine == SPARK else "support.local_penstock"
        done = subprocess.run(
            [sys.executable, "-c", f"{before}\nfrom {module} import run; run()", *arguments],
            cwd=self.home,
            env=os.environ if engine == SPARK else local_penstock.environment(),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        check_manners(done.stdout + done.stderr)
        return Said(done.returncode, done.stdout, done.stderr)

    def drain(self, file: str, *options: str) -> Said:
        """Run a job until it is drained, in this process."""
        return self.run("run", file, "--until", "drained", "--master", MASTER, *options)

    def fill(self, log: str, items: Iterable[Any], **options: Any) -> Log:
        """Append records or values to a log, which is made if there is none."""
        made = Log.create(log_folder(log), exist_ok=True, **options)
        made.append([item if isinstance(item, Record) else Record(None, item) for item in items])
        return made

    def read(self, log: str) -> list[dict[str, Any]]:
        """Return what ``penstock log read`` prints of a log."""
        said = self.run("log", "read", log, "-o", "json")
        assert said.code == 0, said.err
        return [json.loads(text) for text in said.out.splitlines()]

    def values(self, log: str) -> list[Any]:
        """Return the values in a log, sorted: a multiset."""
        return sorted((entry["value"] for entry in self.read(log)), key=repr)

    def errors(self, job: str) -> list[tuple[str, str, str, Any]]:
        """Return the errors stream of a job: vertex, type, message and value of each entry, sorted."""
        entries = [entry["value"] for entry in self.read(f"{job}.errors")]
        return sorted(
            ((one["vertex"], one["error"], one["message"], one["value"]) for one in entries), key=repr
        )
