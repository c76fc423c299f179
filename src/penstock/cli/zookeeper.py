"""``penstock zookeeper``: ZooKeeper servers of our own, in the foreground."""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.cluster_options import local_folder
from penstock.cli.daemon import UnavailableError, daemon_errors, stop_on_signals
from penstock.cli.local_cluster import cluster_folder
from penstock.errors import SettingError


@daemon_errors
def zookeeper(
    servers: Annotated[int, typer.Option("--servers", metavar="1|3", help="How many.")] = 1,
    ports: Annotated[
        str, typer.Option("--ports", metavar="2181,…", help="For clients, one a server; free ones otherwise.")
    ] = "",
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            metavar="DIR",
            callback=local_folder,
            help="Settings and data; $PENSTOCK_HOME/zookeeper.",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds it may take to be up.")] = 30.0,
) -> None:
    """Run one or three ZooKeeper servers from PySpark's jars until SIGTERM or Ctrl-C.

    Prints what to connect with once they serve. They listen on 127.0.0.1 alone. What they know stays in the
    folder. Exit codes: 0 stopped as asked, 1 a server ended, 3 something is wrong.
    """
    from penstock.coord.embedded import EmbeddedZooKeeper

    place = folder or cluster_folder().parent / "zookeeper"
    ensemble = EmbeddedZooKeeper(place, servers=servers, ports=read_ports(ports))
    reader, writer = os.pipe()
    stop = stop_on_signals(lambda: os.close(writer))
    watched: dict[int, int] = {}
    try:
        ensemble.start()
        ensemble.wait_ready(timeout=timeout)
        typer.echo(ensemble.connect_string)
        watched = {os.pidfd_open(pid): number for number, pid in ensemble.pids().items()}
        readable, _, _ = select.select([reader, *watched], [], [])
        ended = [watched[descriptor] for descriptor in readable if descriptor in watched]
        if ended and not stop.is_set():
            raise UnavailableError(f"server {ended[0]} has ended, see {place / f'server-{ended[0]}'}")
    finally:
        for descriptor in (reader, *watched):
            os.close(descriptor)
        ensemble.stop()


def read_ports(text: str) -> list[int] | None:
    """Read port numbers. Raises SettingError.

    >>> read_ports("2181,2182,2183"), read_ports("")
    ([2181, 2182, 2183], None)
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdigit() and 0 < int(part) < 65536 for part in parts):
        raise SettingError(f"{text!r} are not ports: write numbers with commas between them")
    return [int(part) for part in parts] or None
