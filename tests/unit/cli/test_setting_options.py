"""Options of commands that are made of the declaration of settings."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from penstock.cli.main import command_line
from penstock.cli.setting_options import settings_options
from penstock.job_settings import JobSettings, declarations


def _given(*options: str) -> tuple[dict[str, Any], str]:
    """Run a command with options; return what it got, and what it said."""
    found: list[dict[str, Any]] = []

    def command(
        *, name: Annotated[str, typer.Argument()], settings: dict[str, Any], fresh: bool = False
    ) -> None:
        found.append({"name": name, "fresh": fresh, **settings})

    app = typer.Typer()
    app.command()(settings_options(JobSettings)(command))
    result = CliRunner().invoke(app, ["x", *options])
    return (found[0] if found else {}), result.output


def test_what_is_not_given_is_not_there() -> None:
    assert _given()[0] == {"name": "x", "fresh": False}


def test_what_is_given_is_nested_and_read() -> None:
    found, _ = _given(
        *("--cores", "2", "--memory", "2g", "--node", "a", "--node", "b", "--label", "disk=ssd", "--k", "1"),
        *("--publisher", "primary", "--no-warm-standby", "--spark-master", "local", "--conf", "spark.x=1"),
        *("--until", "drained", "--data-location", "node", "--fresh"),
    )
    assert found == {
        "name": "x",
        "fresh": True,
        "resources": {"cores": 2, "memory": 2 << 30},
        "placement": {"nodes": ["a", "b"], "labels": {"disk": "ssd"}},
        "replicas": {"k": 1, "publisher": "primary", "warm_standby": False},
        "spark": {"master": "local", "conf": {"spark.x": "1"}},
        "until": "drained",
        "data_location": "node",
    }


@pytest.mark.parametrize(
    "options",
    [
        ("--recovery", "soon"),
        ("--k", "101"),
        ("--cores", "0"),
        ("--memory", "much"),
        ("--label", "=a"),
        ("--until", "later"),
        ("--standby", "warm"),
    ],
)
def test_what_cannot_be_is_wrong_usage(options: tuple[str, ...]) -> None:
    found, told = _given(*options)
    assert found == {}
    assert options[0] in told or options[1] in told


def test_submit_has_an_option_for_each_setting() -> None:
    group: Any = typer.main.get_command(command_line(["submit"]))
    options = {name for parameter in group.commands["submit"].params for name in parameter.opts}
    assert {each.flag for each in declarations(JobSettings)} <= options
