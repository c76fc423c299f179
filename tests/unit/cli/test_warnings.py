"""What Penstock warns of is one line of a command, said once, and the plan says it of each sink."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import command_line

JOB = """
import warnings

import penstock as ps

job = ps.Job("shown", k=1)
job.source("lines", ps.LogSource("lines")) >> job.sink("screen", ps.ConsoleSink())
warnings.warn("something else", UserWarning, stacklevel=1)
"""


def test_a_warning_is_a_line_and_the_plan_names_the_delivery(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    with pytest.warns(UserWarning, match="something else"):
        done = CliRunner().invoke(command_line(), ["explain", str(tmp_path / "job.py")])
    assert done.exit_code == 0
    assert "each record once from every replica, with an id (every-replica)" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "warning: job 'shown', sink 'screen': each of the 2 replicas delivers every record"
    )
