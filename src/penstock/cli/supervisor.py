"""``penstock supervisor``: run the supervisor of a node, which runs the workers assigned to the node."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import psutil
import typer

from penstock import __version__
from penstock.cli.command_options import (
    ClusterFolder,
    Host,
    Port,
    StoreAddress,
    StoreRoot,
    StoreWait,
    read_memory,
)
from penstock.cli.daemon_process import check_name, daemon_errors
from penstock.cli.supervisor_process import SupervisorOptions
from penstock.cluster.node_documents import NodeInfo
from penstock.errors import SettingError
from penstock.local.cluster_layout import ROOT
from penstock.local.local_cluster import cluster_folder as own_folder
from penstock.local_files import local_path
from penstock.log import home
from penstock.supervisor.machine_load import link_speed

_PORT = 7720


@daemon_errors
def supervisor(
    name: Annotated[str, typer.Option("--name", help="Name of the node, unique in the cluster.")],
    connect: StoreAddress,
    host: Host = "127.0.0.1",
    port: Port = _PORT,
    cores: Annotated[
        int | None, typer.Option("--cores", help="Cores that workers may use; by default all cores.")
    ] = None,
    memory: Annotated[
        str,
        typer.Option(
            "--memory", metavar="SIZE", help="Memory that workers may use; by default 3/4 of the machine's."
        ),
    ] = "",
    rack: Annotated[
        str, typer.Option("--rack", help="The rack of the node. Replicas and backups are spread over racks.")
    ] = "",
    bandwidth: Annotated[
        str,
        typer.Option(
            "--bandwidth",
            metavar="SIZE",
            help="Bandwidth of its network link in bytes a second; by default that of the interface.",
        ),
    ] = "",
    uplink: Annotated[
        str,
        typer.Option(
            "--uplink", metavar="SIZE", help="Bandwidth between its rack and the others, in bytes a second."
        ),
    ] = "",
    labels: Annotated[
        str, typer.Option("--labels", metavar="NAME=VALUE,…", help="Labels that jobs can require of a node.")
    ] = "",
    storage: Annotated[
        Path | None,
        typer.Option(
            "--storage",
            metavar="DIR",
            help="Folder for logs and jobs, shared by all nodes; $PENSTOCK_HOME by default.",
        ),
    ] = None,
    root: StoreRoot = ROOT,
    cluster_folder: ClusterFolder = None,
    wait: StoreWait = 60.0,
) -> None:
    """Run the supervisor of a node until SIGTERM or Ctrl-C. Its workers keep running; the next supervisor
    adopts them.

    Exit codes: 0 stopped on request, 1 a resource was unavailable (a port, ZooKeeper), 3 wrong configuration
    (the key, an option).
    """
    check_name(name)
    info = NodeInfo(
        name=name,
        host=host,
        cores=cores if cores is not None else os.cpu_count() or 1,
        memory=read_memory(memory) if memory else psutil.virtual_memory().total * 3 // 4,
        rack=rack,
        labels=parse_label_list(labels),
        url=f"http://{host}:{port}",
        pid=os.getpid(),
        started=time.time(),
        version=__version__,
        bandwidth=float(read_memory(bandwidth)) if bandwidth else link_speed(host),
        uplink=float(read_memory(uplink)) if uplink else 0.0,
    )
    if info.cores < 1:
        raise SettingError(f"a node must have at least 1 core, not {info.cores}")
    options = SupervisorOptions(
        port=port,
        cluster_folder=str((cluster_folder or own_folder()).absolute()),
        storage=str(local_path("--storage", storage or home())),
        connect=connect,
        root=root,
        wait=wait,
    )
    _exec_supervisor({"info": asdict(info), "options": asdict(options)})


def _exec_supervisor(content: dict[str, object]) -> None:
    """Replace this process with the supervisor, to free the 10 MB of memory that the option parser uses."""
    sys.stdout.flush()
    sys.stderr.flush()
    module = "penstock.cli.supervisor_process"
    os.execv(sys.executable, [sys.executable, "-m", module, json.dumps(content)])  # noqa: S606


def parse_label_list(text: str) -> dict[str, str]:
    """Read labels. Raises SettingError.

    >>> parse_label_list("disk=ssd,gpu=no"), parse_label_list("")
    ({'disk': 'ssd', 'gpu': 'no'}, {})
    """
    labels = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"{part!r} is not a label: write NAME=VALUE,NAME=VALUE")
        labels[name.strip()] = value.strip()
    return labels
