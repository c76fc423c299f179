"""The reference is as scripts/write_reference.py writes it, and has all that the code offers."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from replicated_cluster import Cluster

from penstock.cli.main import command_line
from penstock.job_settings import JobSettings, declarations
from penstock.master.master_service import MasterService
from penstock.web.master_api import make_master_api

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference"
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "write_reference.py"))


def _page(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def _section(page: str, heading: str) -> str:
    start = page.index(f"\n## {heading}\n")
    end = page.find("\n## ", start + 1)
    return page[start:] if end < 0 else page[start:end]


@pytest.mark.parametrize("page", sorted(page.name for page in PAGES.glob("*.md")))
def test_a_page_is_up_to_date(page: str) -> None:
    text = _page(page)
    assert SCRIPT["updated"](text) == text, "run make reference"


def test_each_part_is_in_one_page() -> None:
    pages = "".join(_page(page.name) for page in PAGES.glob("*.md"))
    assert sorted(re.findall("<!-- generated: (.+) -->", pages)) == sorted(SCRIPT["parts"]())


def test_an_altered_table_is_seen() -> None:
    page = _page("cli.md")
    altered = page.replace("| `--drain` |", "| `--drained` |")
    assert altered != page
    assert SCRIPT["updated"](altered) == page


def test_each_setting_is_in_the_table() -> None:
    page = _page("settings.md")
    for each in declarations(JobSettings):
        assert f"| `{'.'.join(each.path)}` | `{each.flag}" in page


def _commands(command: Any, name: str) -> Iterator[Any]:
    """Return each command that is no group of others, with the long names of its options."""
    if hasattr(command, "commands"):
        for word, each in command.commands.items():
            yield from _commands(each, f"{name} {word}")
        return
    options = [max(option.opts, key=len) for option in command.params if option.opts[0][0] == "-"]
    yield pytest.param(name, options, id=name)


@pytest.mark.parametrize(
    ("name", "options"), list(_commands(typer.main.get_command(command_line()), "penstock"))
)
def test_the_page_on_the_command_line_has_each_command_and_option(name: str, options: list[str]) -> None:
    page = _page("cli.md")
    own = _section(page, name)
    assert own.startswith(f"\n## {name}\n\n<!-- generated: {name} -->\n")
    shared, settings = (
        _section(page, "Shared options"),
        _page("settings.md").partition("generated: settings")[2],
    )
    for option in options:
        row = re.compile(rf"^\| .*`{option}[ `]", re.MULTILINE)
        is_shared = f"`{option}`" in own and row.search(shared)
        is_setting = "settings.md#settings-of-a-job" in own and row.search(settings)
        assert row.search(own) or is_shared or is_setting, option


def _openapi() -> dict[str, Any]:
    return make_master_api(cast(MasterService, None), "token", hosts=["localhost"]).openapi()


def _routes(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the routes of a schema as they are written, with their declarations."""
    return {
        f"{method.upper()} {re.sub(r'{(.+?)}', lambda name: name[1].upper(), path)}": route
        for path, methods in schema["paths"].items()
        for method, route in methods.items()
    }


def test_the_page_on_rest_has_each_route_with_its_fields_and_errors() -> None:
    page, schema = _page("rest-api.md"), _openapi()
    routes, fields = _section(page, "Routes"), _section(page, "Fields of requests")
    settings = {each.name for each in declarations(JobSettings)}
    for name, route in _routes(schema).items():
        assert f"| `{name}` | {min(route['responses'])}" in routes
        for status in set(route["responses"]) - {"200", "201", "204"}:
            assert f"\n| {status} |" in _section(page, "Errors")
        for parameter in route.get("parameters", ()):
            if parameter["in"] != "path":
                assert f"| `{parameter['name']}` ({parameter['in']}) |" in fields
        if "requestBody" in route:
            assert re.search(rf"^\| .*`{name}`", fields, re.MULTILINE), name
        for reference in re.findall("#/components/schemas/(\\w+)", str(route.get("requestBody"))):
            for field in schema["components"]["schemas"][reference]["properties"].keys() - settings:
                assert f" | `{field}` | " in fields, f"{name}: {field}"


def test_the_page_on_metrics_has_each_one_that_is_exposed_and_no_other() -> None:
    names = re.findall(r"^# TYPE (\w+) (\w+)$", Cluster().service.metrics(), re.M)
    told = re.findall(r"^\| `(penstock_\w+)` \| (\w+) \|", _page("metrics.md"), re.M)
    assert len(names) > 20
    assert sorted(told) == sorted(names)
