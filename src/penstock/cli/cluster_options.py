"""Arguments and options that several commands of a cluster have, and how a command finds its cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from penstock.cli.output import Output
from penstock.errors import SettingError
from penstock.local_paths import local_path
from penstock.log import home

if TYPE_CHECKING:
    from penstock.web.client import MasterClient

T = TypeVar("T")
U = TypeVar("U")

MasterUrl = Annotated[
    str | None,
    typer.Option(
        "--master-url",
        metavar="URL",
        help="A master, or several with commas; else $PENSTOCK_MASTER_URL, else what penstock up started.",
    ),
]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")]
Form = Annotated[Output, typer.Option("-o", "--output", help="What to print.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Print it again every two seconds, until Ctrl-C.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return only when it has happened.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.0,
        metavar="SECONDS",
        help="How long --wait waits at the most, 0 for no limit; 600 unless a job is drained.",
    ),
]


def connect_client(master_url: str | None) -> MasterClient:
    """Return the client of the cluster that a user means."""
    from penstock.web.client import MasterClient
    from penstock.web.settings import find_masters, find_token

    folder = home() / "cluster"
    return MasterClient(find_masters(master_url, folder), find_token(folder))


def usage(read: Callable[[T], U], given: T) -> U:
    """Read an option; what cannot be read is wrong usage."""
    try:
        return read(given)
    except SettingError as error:
        raise typer.BadParameter(str(error)) from error


def local_folder(parameter: typer.CallbackParam, given: Path | None) -> Path | None:
    """Refuse a folder that is an address, as the callback of an option."""
    if given is not None:
        usage(partial(local_path, parameter.opts[0]), given)
    return given


def read_labels(assignments: list[str]) -> dict[str, str]:
    """Read ``name=value`` words.

    >>> read_labels(["disk=ssd", "zone="])
    {'disk': 'ssd', 'zone': ''}
    """
    labels = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise SettingError(f"--label takes NAME=VALUE, not {assignment!r}")
        labels[name] = value
    return labels
