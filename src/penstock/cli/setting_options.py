"""Command options for the settings of a job, derived from the declarations of the settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Annotated, Any, get_origin

import typer

from penstock.cli.command_options import read_labels, read_memory, usage
from penstock.job_settings import Declaration, declarations

_Command = Callable[..., None]


def settings_options(kind: type) -> Callable[[_Command], _Command]:
    """Replace a command's parameter ``settings`` by one option for each setting of a class.

    The command receives the given options as nested data; options that were not given are left out.
    """
    declared = {_parameter(each): each for each in declarations(kind)}

    def decorate(command: _Command) -> _Command:
        @wraps(command)
        def run(**given: Any) -> None:
            settings: dict[str, Any] = {}
            for name, each in declared.items():
                value = _read(each, given.pop(name))
                if value is not None:
                    _put(settings, each.path, value)
            command(settings=settings, **given)

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.name == "settings":
                parameters += map(partial(_option, declared), declared)
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        signature = inspect.Signature(parameters)
        described: Any = run
        described.__signature__ = signature
        described.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


def _parameter(each: Declaration) -> str:
    return each.flag.removeprefix("--").replace("-", "_")


def _option(declared: Mapping[str, Declaration], name: str) -> inspect.Parameter:
    each = declared[name]
    hint: Any = str
    flag, text = each.flag, each.about.text
    options: dict[str, Any] = {}
    metavar = each.about.metavar or "|".join(each.choices) or None
    if _is_repeatable(each):
        hint, text = list[str], f"{text.removesuffix('.')}; repeatable."
    elif each.kind is bool:
        hint, flag, metavar = bool, f"{flag}/--no-{flag.removeprefix('--')}", None
    elif each.kind is int and not each.about.unit:
        hint, (options["min"], options["max"]) = int, each.bounds
    option = typer.Option(flag, metavar=metavar, help=text, **options)
    annotation = Annotated[hint | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _is_repeatable(each: Declaration) -> bool:
    return get_origin(each.kind) is not None and isinstance(each.default, tuple | dict)


def _read(each: Declaration, given: Any) -> Any:
    """Convert the value of an option to the declared type; report an invalid value as wrong usage."""
    if given is None:
        return None
    if isinstance(each.default, dict):
        if each.path == ("spark", "conf"):  # ``read_conf`` refuses Spark settings that Penstock sets itself.
            from penstock.spark.spark_settings import read_conf

            return usage(read_conf, given)
        return usage(read_labels, given)
    if each.about.unit:
        return usage(read_memory, given)
    if each.choices and given not in each.choices:
        known = " or ".join(map(repr, each.choices))
        raise typer.BadParameter(f"{each.flag} takes {known}, not {given!r}")
    return given


def _put(settings: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *groups, name = path
    for group in groups:
        settings = settings.setdefault(group, {})
    settings[name] = value
