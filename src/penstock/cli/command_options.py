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
    """The output format."""

    TEXT = "text"
    JSON = "json"


_SHIFT = {"k": 10, "m": 20, "g": 30, "t": 40}


def read_memory(text: str) -> int:
    """Read a number of bytes; a single letter stands for a power of two, as with Spark and Java.

    >>> read_memory("2g"), read_memory("512m"), read_memory("1GiB"), read_memory("1000")
    (2147483648, 536870912, 1073741824, 1000)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt])", text.strip(), re.IGNORECASE)
    size = round(float(match[1]) * (1 << _SHIFT[match[2].lower()])) if match else read_size(text)
    if size <= 0:
        raise SettingError(f"an amount of memory must be above 0, not {text!r}")
    return size


T = TypeVar("T")
U = TypeVar("U")

MasterUrl = Annotated[
    str | None,
    typer.Option(
        "--master-url",
        metavar="URL",
        help="URL of a master, or several separated by commas, which are tried in turn; default: "
        "$PENSTOCK_MASTER_URL, else the cluster of penstock up.",
    ),
]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="The name of the job.")]
Form = Annotated[Output, typer.Option("-o", "--output", help="The output format.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Print again every two seconds, until Ctrl-C.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return only when the change has taken effect.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.0,
        metavar="SECONDS",
        help="Seconds that --wait waits at most, 0 for no limit; default 600, no limit for draining.",
    ),
]


def connect_client(master_url: str | None) -> MasterClient:
    """Return a client for the given masters, or for those of the environment or of ``penstock up``."""
    from penstock.web.cluster_access import find_masters, find_token
    from penstock.web.master_client import MasterClient

    folder = home() / "cluster"
    return MasterClient(find_masters(master_url, folder), find_token(folder))


def usage(read: Callable[[T], U], given: T) -> U:
    """Parse the value of an option; report an invalid value as wrong usage."""
    try:
        return read(given)
    except SettingError as error:
        raise typer.BadParameter(str(error)) from error


def local_folder(parameter: typer.CallbackParam, given: Path | None) -> Path | None:
    """Reject a URL where a folder is expected; used as the callback of an option."""
    if given is not None:
        usage(partial(local_path, parameter.opts[0]), given)
    return given


def read_labels(assignments: list[str]) -> dict[str, str]:
    """Parse labels given as ``name=value``.

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
    typer.Option(
        "--param", metavar="NAME=VALUE", help="A parameter that the code reads from ps.params; repeatable."
    ),
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME[=VALUE]",
        help="An environment variable; NAME alone takes the value of the node; repeatable.",
    ),
]


Host = Annotated[str, typer.Option("--host", help="The address to listen on.")]
Port = Annotated[int, typer.Option("--port", help="The port to listen on.")]
StoreAddress = Annotated[
    str, typer.Option("--connect", metavar="HOST:PORT,…", help="Addresses of the ZooKeeper servers.")
]
StoreRoot = Annotated[
    str,
    typer.Option(
        "--root", metavar="PATH", help="The ZooKeeper path under which the cluster keeps its nodes."
    ),
]
ClusterFolder = Annotated[
    Path | None,
    typer.Option(
        "--cluster-folder",
        metavar="DIR",
        callback=local_folder,
        help="Folder of cluster.key; $PENSTOCK_HOME/cluster by default.",
    ),
]
RetainDays = Annotated[
    float, typer.Option("--retain-days", min=0.0, help="How many days a job is kept after it has ended.")
]
RetainJobs = Annotated[
    int, typer.Option("--retain-jobs", min=0, help="How many jobs are kept after they have ended or failed.")
]
StoreWait = Annotated[float, typer.Option("--wait", help="Seconds to wait for ZooKeeper at the start.")]


LogName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the log.")]
LogRoot = Annotated[
    Path | None,
    typer.Option("--root", metavar="DIR", help="Folder of logs, instead of $PENSTOCK_HOME or ~/.penstock."),
]
