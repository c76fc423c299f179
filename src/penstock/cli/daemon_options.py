"""The options that masters and supervisors share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.cluster_options import local_folder

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
