"""Options and arguments that several commands share, and how their values are read.

Output format, sizes, the cluster's address, waiting, parameters, options of daemons and of logs. It must
not import ``penstock.graph`` or the HTTP libraries: commands that only ask a cluster start without them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from penstock.errors import SettingError
from penstock.local_files import local_path
from penstock.log import home
from penstock.setting_values import read_size

if TYPE_CHECKING:
    from penstock.web.master_client import MasterClient


class Output(StrEnum):
    """The form of what is printed."""

    TEXT = "text"
    JSON = "json"


_SHIFT = {"k": 10, "m": 20, "g": 30, "t": 40}


def read_memory(text: str) -> int:
    """Read a number of bytes; a bare letter counts in powers of two, as with Spark and Java.

    >>> read_memory("2g"), read_memory("512m"), read_memory("1GiB"), read_memory("1000")
    (2147483648, 536870912, 1073741824, 1000)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt])", text.strip(), re.IGNORECASE)
    size = round(float(match[1]) * (1 << _SHIFT[match[2].lower()])) if match else read_size(text)
    if size <= 0:
        raise SettingError(f"{text!r} is no memory at all")
    return size


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
    from penstock.web.cluster_access import find_masters, find_token
    from penstock.web.master_client import MasterClient

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


Param = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=VALUE", help="What the code reads as ps.params; repeatable."),
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME[=VALUE]",
        help="A variable of its environment, alone as its node has it; repeatable.",
    ),
]


Host = Annotated[str, typer.Option("--host", help="The address it listens at.")]
Port = Annotated[int, typer.Option("--port", help="The port it answers at.")]
StoreAddress = Annotated[str, typer.Option("--connect", metavar="HOST:PORT,…", help="The ZooKeeper servers.")]
StoreRoot = Annotated[str, typer.Option("--root", help="The node of ZooKeeper that all others are below.")]
ClusterFolder = Annotated[
    Path | None,
    typer.Option(
        "--cluster-folder",
        metavar="DIR",
        callback=local_folder,
        help="Holds cluster.key; $PENSTOCK_HOME/cluster.",
    ),
]
RetainDays = Annotated[
    float, typer.Option("--retain-days", min=0.0, help="How long a job that has ended is known.")
]
RetainJobs = Annotated[
    int, typer.Option("--retain-jobs", min=0, help="How many jobs that are over are known at the most.")
]
StoreWait = Annotated[float, typer.Option("--wait", help="Seconds to wait for ZooKeeper at first.")]


LogName = Annotated[str, typer.Argument(metavar="NAME", help="The log's name.")]
LogRoot = Annotated[
    Path | None,
    typer.Option("--root", metavar="DIR", help="Where logs live, instead of $PENSTOCK_HOME or ~/.penstock."),
]
