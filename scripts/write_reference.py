"""What `make reference` runs: writes the marked parts of docs/reference from the code.

Settings derive from penstock.job_settings, commands from the command line, routes and their fields from the
OpenAPI document of a master, metrics from penstock.master.cluster_metrics. A test fails while a page is not
as this script writes it.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import Any, cast, get_args

import typer

from penstock.cli.main import command_line
from penstock.job_settings import Declaration, JobSettings, declarations
from penstock.master.cluster_metrics import METRICS
from penstock.web.master_api import make_master_api
from penstock.web.request_schemas import DIGEST

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"
_PART = re.compile(r"(<!-- generated: ([A-Za-z -]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SETTINGS = "settings.md#settings-of-a-job"


# Markdown


def _table(*rows: Iterable[str]) -> str:
    heading, *rest = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [heading, ["---"] * len(heading), *rest]
    return "\n".join("|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in lines)


_CODE = (
    r"--[a-z][a-z-]+",  # an option
    r"\$[A-Z_]+[\w./]*\w|~/[\w./]*\w",  # a variable of the environment, a path
    r"ps\.\w+|job\.\w+\(\)|\w+\.(?:key|txt|json)\b|local\[\*\]",
)


@cache
def _marked() -> re.Pattern[str]:
    """Return what is code in a sentence; the longest names of commands come first."""
    return re.compile(rf"(?<![\w-])({'|'.join([*sorted(_commands(), reverse=True), *_CODE])})(?!\w)")


def _text(text: str) -> str:
    """Return a sentence of the code as Markdown, with commands, options and variables marked as code."""
    return _marked().sub(r"`\1`", " ".join(text.split()))


def _code(values: Iterable[object], between: str = ", ") -> str:
    return between.join(f"`{value}`" for value in values)


def _first_sentence(text: str) -> str:
    return _text(re.split(r"\n\n|(?<=\.)\s", text, maxsplit=1)[0])


# Settings of a job

_UNITS = ((1 << 30, "g"), (1 << 20, "m"))


def settings() -> str:
    """Settings of a job, with their options of ``penstock submit``."""
    rows = [["setting", "option", "default", "values", "what it is"]]
    for each in declarations(JobSettings):
        row = [f"`{'.'.join(each.path)}`", f"`{_option(each)}`", _default(each), _values(each)]
        rows.append([*row, each.about.text])
    return _table(*rows)


def _option(each: Declaration) -> str:
    if each.kind is bool:
        return f"{each.flag}`, `--no-{each.flag.removeprefix('--')}"
    return f"{each.flag} {each.about.metavar or '|'.join(each.choices) or 'N'}"


def _default(each: Declaration) -> str:
    if each.default in ((), {}, None, ""):
        return ""
    if each.about.unit:
        return next(f"`{each.default // size}{unit}`" for size, unit in _UNITS if each.default % size == 0)
    return f"`{str(each.default).lower() if each.kind is bool else each.default}`"


def _values(each: Declaration) -> str:
    if each.choices:
        return _code(each.choices)
    least, most = each.bounds
    if least is not None and most is not None:
        return f"{_number(each, least)} to {_number(each, most)}"
    if each.kind is bool:
        return "`true`, `false`"
    return "several" if isinstance(each.default, tuple | dict) else "text"


def _number(each: Declaration, value: int) -> str:
    return f"{value >> 20:,} MiB" if each.about.unit else f"{value:,}"


# Commands

_SHARED = 4
"""Options that so many commands have in the same words are described once."""


@cache
def _commands() -> Mapping[str, Any]:
    """Return the commands by what is typed, in the order of ``--help``."""
    found: dict[str, Any] = {}

    def add(command: Any, name: str) -> None:
        if not hasattr(command, "commands"):
            found[name] = command
            return
        for word, each in command.commands.items():
            add(each, f"{name} {word}")

    add(typer.main.get_command(command_line()), "penstock")
    return found


def commands() -> str:
    """All commands in one table."""
    rows = [["command", "what it does"]]
    for name, command in _commands().items():
        rows.append([f"[`{name}`](#{name.replace(' ', '-')})", _first_sentence(command.help)])
    return _table(*rows)


def shared_options() -> str:
    """Options of several commands."""
    return _table(["option", "default", "what it does"], *_shared())


@cache
def _shared() -> list[tuple[str, str, str]]:
    rows = [
        _row(command, each)
        for command in _commands().values()
        for each in command.params
        if _is_option(each) and _setting(each) is None
    ]
    return [row for row, count in Counter(rows).items() if count >= _SHARED]


def _command(name: str) -> str:
    """Usage, purpose, arguments and options of a command."""
    command = _commands()[name]
    own, shared, declared = [], [], []
    for each in command.params:
        row = _row(command, each)
        if (setting := _setting(each)) is not None:
            declared.append(setting)
        elif _is_option(each) and row in _shared():
            shared.append(max(each.opts, key=len))
        else:
            own.append(row)
    parts = [f"`{_usage(name, command)}`", _text(command.help.split("\n\n")[0])]
    if own:
        parts.append(_table(["argument or option", "default", "what it does"], *own))
    if declared:
        parts.append(f"There is an option for {_settings_named(declared)}.")
    if shared:
        parts.append(f"[Shared options](#shared-options): {_code(shared)}.")
    return "\n\n".join(parts)


def _settings_named(found: Iterable[Declaration]) -> str:
    """Name settings by their groups, which are described elsewhere: a new one alters no other page."""
    paths = [each.path for each in found]
    every = [each.path for each in declarations(JobSettings)]
    if paths == every:
        return f"each [setting of a job]({_SETTINGS})"
    groups = list(dict.fromkeys(path[0] for path in paths))
    assert paths == [path for path in every if path[0] in groups], "a command has all settings of a group"
    return f"each [setting]({_SETTINGS}) of {_code(groups)}"


def _is_option(each: Any) -> bool:
    return bool(each.opts[0].startswith("-"))


def _setting(each: Any) -> Declaration | None:
    """Return the setting of a job that an option gives; None if it is an option of another kind."""
    texts = {one.flag: one for one in declarations(JobSettings)}
    found = texts.get(each.opts[0])
    return found if found and (each.help or "").startswith(found.about.text.removesuffix(".")) else None


def _usage(name: str, command: Any) -> str:
    required = [_typed(command, each) for each in command.params if _is_option(each) and each.required]
    arguments = [_value(command, each) for each in command.params if not _is_option(each)]
    options = ["[OPTIONS]"] if any(_is_option(each) and not each.required for each in command.params) else []
    return " ".join([name, *required, *options, *arguments])


def _typed(command: Any, each: Any) -> str:
    return f"{max(each.opts, key=len)} {_value(command, each)}".strip()


def _row(command: Any, each: Any) -> tuple[str, str, str]:
    value = _value(command, each)
    if not _is_option(each):
        return f"`{value}`", "", _text(each.help or "")
    names = sorted(
        [*each.opts, *each.secondary_opts], key=lambda name: (len(name) > 2, name not in each.opts)
    )
    names[-1] = f"{names[-1]} {value}".strip()
    default = each.default.value if isinstance(each.default, Enum) else each.default
    given = "" if default is None or default is False or default == "" else f"`{_plain(default)}`"
    return _code(names), "required" if each.required else given, f"{_text(each.help or '')}{_bounds(each)}"


def _value(command: Any, each: Any) -> str:
    """Return what stands for the value of an option or argument; nothing for a flag."""
    if each.metavar:
        return str(each.metavar)
    if getattr(each, "is_flag", False):
        return ""
    hint = inspect.signature(command.callback, eval_str=True).parameters[each.name].annotation
    kinds = [one for one in (*get_args(get_args(hint)[0]), get_args(hint)[0]) if isinstance(one, type)]
    choices = [one.value for kind in kinds if issubclass(kind, Enum) for one in kind]
    return "|".join(choices) or (
        "N" if {int, float} & set(kinds) else each.opts[0].rpartition("-")[2].upper()
    )


def _bounds(each: Any) -> str:
    least, most = getattr(each, "min", None), getattr(each, "max", None)
    if most is not None:
        return f" {_plain(least)} to {_plain(most)}."
    return "" if least in (None, 0, 1) else f" At least {_plain(least)}."


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# Routes


@cache
def _openapi() -> Mapping[str, Any]:
    return make_master_api(cast(Any, None), "token", hosts=["localhost"]).openapi()


def _routes() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return each route as it is written, and its declaration."""
    for path, methods in _openapi()["paths"].items():
        place = re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), path)
        for method, route in methods.items():
            yield f"{method.upper()} {place}", route


def routes() -> str:
    """All routes in one table, and below it the errors that any of them can answer with."""
    rows = [["route", "answers", "errors", "what it does"]]
    secured, public = _common_errors(secured=True), _common_errors(secured=False)
    for name, route in _routes():
        common = secured if "security" in route else public
        errors = [status for status in _errors(route) if status not in common]
        rows.append([f"`{name}`", _answers(route), ", ".join(errors), _text(route["description"])])
    told = (
        f"Every route can also answer {_listed(public)}. Those below `/api/v1` need the token, and can also "
        f"answer {_listed(status for status in secured if status not in public)}."
    )
    return f"{_table(*rows)}\n\n{told}"


def _errors(route: Mapping[str, Any]) -> list[str]:
    return [status for status in sorted(route["responses"]) if status >= "4"]


def _common_errors(*, secured: bool) -> list[str]:
    """Return the errors of all routes that need the token, or of all that do not."""
    found = [set(_errors(route)) for _, route in _routes() if ("security" in route) is secured]
    return sorted(set.intersection(*found))


def _listed(words: Iterable[str]) -> str:
    *before, last = words
    return f"{', '.join(before)} and {last}" if before else last


def _answers(route: Mapping[str, Any]) -> str:
    status = min(route["responses"])
    content = route["responses"][status].get("content", {})
    return f"{status} {_content(content)}".strip()


def _content(content: Mapping[str, Any]) -> str:
    if "application/json" in content:
        return _kind(content["application/json"]["schema"])
    return ", ".join(f"`{kind}`" for kind in content)


def request_fields() -> str:
    """Queries, headers and bodies of all routes; routes with the same fields are described together."""
    found: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for name, route in _routes():
        if fields := tuple(_request_fields(route)):
            found.setdefault(fields, []).append(f"`{name}`")
    rows: list[tuple[str, ...]] = [("route", "field", "type", "default", "what it is")]
    for (first, *others), names in found.items():
        rows += [(", ".join(names), *first), *(("", *field) for field in others)]
    return _table(*rows)


def _request_fields(route: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for each in route.get("parameters", ()):
        if each["in"] != "path":
            field = {"default": None, **each["schema"], "description": each.get("description", "")}
            yield _field(f"`{each['name']}` ({each['in']})", field, required=bool(each.get("required")))
    body = route.get("requestBody", {}).get("content", {})
    for kind, content in body.items():
        if kind != "application/json":
            yield "the body", f"`{kind}`", "required", ""
            continue
        schema = _resolved(_without_null(content["schema"]))
        declared: list[Declaration] = []
        for name, field in schema.get("properties", {}).items():
            if (setting := _setting_of(name, field)) is not None:
                declared.append(setting)
            else:
                yield _field(f"`{name}`", field, required=name in schema.get("required", ()))
        if declared:
            yield _settings_named(declared), "", "", "What is left out stays."


def _field(name: str, field: Mapping[str, Any], *, required: bool) -> tuple[str, str, str, str]:
    default = field.get("default")
    shown = "" if default is None or default == "" else f"`{default}`".lower()
    return name, _kind(field), "required" if required else shown, _text(field.get("description", ""))


def _setting_of(name: str, field: Mapping[str, Any]) -> Declaration | None:
    """Return the setting of a job that a field gives."""
    text = _without_null(field).get("description")
    return next(
        (one for one in declarations(JobSettings) if (one.name, one.about.text) == (name, text)), None
    )


def _resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    return cast(Mapping[str, Any], _openapi()["components"]["schemas"][_schema_name(schema)])


def _schema_name(schema: Mapping[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _without_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    others = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    return others[0] if others else schema


@cache
def _documents() -> frozenset[str]:
    """Return the sections of the page on the store."""
    page = (PAGES / "store.md").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^### (\w+)$", page, re.MULTILINE))


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the type of a value, with its bounds."""
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "$ref" in schema:
        return _link(_schema_name(schema))
    if "enum" in schema:
        return _code(schema["enum"])
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {_kinds(schema['items'])}"
    if kind == "object":
        values = schema.get("additionalProperties", True)
        values = next(iter(schema.get("patternProperties", {}).values()), values)
        return "object" if isinstance(values, bool) else f"object of {_kinds(values)}"
    return f"{kind}{_limits(schema)}"


def _kinds(schema: Mapping[str, Any]) -> str:
    """Return the type of several values."""
    if "anyOf" in schema:
        return " or ".join(map(_kinds, schema["anyOf"]))
    kind = schema.get("type", "null")
    return _kind(schema) if kind in ("null", "array") else _kind(schema).replace(kind, f"{kind}s", 1)


def _limits(schema: Mapping[str, Any]) -> str:
    if "minimum" in schema and "maximum" in schema:
        return f" ({schema['minimum']:,} to {schema['maximum']:,})"
    if schema.get("pattern") == DIGEST:
        return " of 64 hexadecimal digits"
    return f" (at most {schema['maxLength']:,} characters)" if "maxLength" in schema else ""


def _link(name: str) -> str:
    if name in _answer_schemas().values():
        return f"[{_words(name)}](#{_words(name).replace(' ', '-')})"
    if name == "JobSettingsRequest":
        return "[settings](#settings)"
    if name in _documents():
        return f"[{name}](store.md#{name.lower()})"
    return f"object with {_code(_openapi()['components']['schemas'][name]['properties'])}"


def _words(name: str) -> str:
    """Return the name of a schema in words: "job summary" for JobSummary, "node" for NodeView."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", re.sub(r"(View|Info)$", "", name)).lower()


@cache
def _answer_schemas() -> Mapping[str, str]:
    """Return the schemas that routes answer with, by their names in words."""
    found = ["ReplicaView"]
    for _, route in _routes():
        content = route["responses"][min(route["responses"])].get("content", {})
        schema = content.get("application/json", {}).get("schema", {})
        found += [_schema_name(one) for one in (schema, schema.get("items", {})) if "$ref" in one]
    return {_words(name): name for name in found}


def _answer(name: str) -> str:
    """The fields of an answer with their types."""
    fields = _openapi()["components"]["schemas"][_answer_schemas()[name]]["properties"]
    return ", ".join(f"`{field}` ({_kind(schema)})" for field, schema in fields.items()) + "."


# Metrics


def _metrics(group: str) -> str:
    """The metrics of a group."""
    rows = [["name", "type", "labels", "unit", "meaning"]]
    for each in METRICS:
        if each.group == group:
            row = [f"`{each.name}`", each.kind, _code(each.labels), each.unit, _text(each.text)]
            rows.append(row)
    return _table(*rows)


# Pages


@cache
def parts() -> Mapping[str, Callable[[], str]]:
    """Return what writes each part of a page."""
    return {
        "settings": settings,
        "commands": commands,
        "shared options": shared_options,
        **{name: partial(_command, name) for name in _commands()},
        "routes": routes,
        "request fields": request_fields,
        **{f"answer {name}": partial(_answer, name) for name in _answer_schemas()},
        **{f"metrics of {each.group}": partial(_metrics, each.group) for each in METRICS},
    }


def updated(page: str) -> str:
    """Return a page with its marked parts as they are to be."""
    return _PART.sub(lambda part: f"{part[1]}\n{parts()[part[2]]()}\n\n{part[3]}", page)


def main() -> None:
    """Write all pages."""
    for page in sorted(PAGES.glob("*.md")):
        before = page.read_text(encoding="utf-8")
        after = updated(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            sys.stderr.write(f"wrote {page.name}\n")


if __name__ == "__main__":
    main()
