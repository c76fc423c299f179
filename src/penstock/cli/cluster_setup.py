"""``penstock prepare``, ``key`` and ``zookeeper``: what a cluster needs before its first master starts."""

from __future__ import annotations

import json
import os
import select
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.command_errors import user_errors
from penstock.cli.command_options import ClusterFolder, Output, local_folder
from penstock.cli.daemon_process import UnavailableError, daemon_errors, stop_on_signals
from penstock.errors import SettingError
from penstock.java_runtime import archive_folder, check_java, find_archive
from penstock.keyring import KEY_FILE, TOKEN_FILE, open_keyring
from penstock.local.local_cluster import cluster_folder
from penstock.local.local_cluster import cluster_folder as own_folder


@user_errors
def prepare(
    output: Annotated[Output, typer.Option("-o", "--output", help="The output format.")] = Output.TEXT,
) -> None:
    """Create an archive of Spark's classes, unless there is one, so that drivers and executors start faster.

    It takes half a minute and 180 MB of disk in the Python environment that Penstock is installed in. Run it
    again after an update of Java or PySpark.
    """
    check_java()
    found = find_archive(archive_folder())
    made = found is None
    if found is None:
        from penstock.spark.warm_start import prepare as make

        if output is Output.TEXT:
            typer.echo("creating an archive of Spark's classes, which takes half a minute …", err=True)
        found = make()
    if output is Output.JSON:
        typer.echo(json.dumps({"archive": str(found), "made": made}))
    else:
        typer.echo(f"Spark starts from {found}")


@user_errors
def key(
    cluster_folder: ClusterFolder = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="The output format.")] = Output.TEXT,
) -> None:
    """Create the key of a cluster, unless there is one, and print where it is.

    Masters and supervisors need the key: copy its file to their machines, with mode 600. Users need the
    token, which is derived from the key. Neither is printed.
    """
    folder = (cluster_folder or own_folder()).absolute()
    open_keyring(folder, create=True)
    files = {"key": str(folder / KEY_FILE), "token": str(folder / TOKEN_FILE)}
    if output is Output.JSON:
        typer.echo(json.dumps(files))
        return
    typer.echo(f"for masters and supervisors: {files['key']}")
    typer.echo(f"for users:                   {files['token']}")


@daemon_errors
def zookeeper(
    servers: Annotated[int, typer.Option("--servers", metavar="1|3", help="Number of servers.")] = 1,
    ports: Annotated[
        str,
        typer.Option(
            "--ports",
            metavar="PORT,…",
            help="Client ports, one for each server; by default free ports, the same each time.",
        ),
    ] = "",
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            metavar="DIR",
            callback=local_folder,
            help="Folder for settings and data; $PENSTOCK_HOME/zookeeper by default.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait for the servers to be up.")
    ] = 30.0,
) -> None:
    """Run one or three ZooKeeper servers from PySpark's jars until SIGTERM or Ctrl-C.

    Prints the connect string once they serve requests. They listen on 127.0.0.1 only and keep their data in
    the folder. Exit codes: 0 stopped on request, 1 a server ended, 3 wrong configuration.
    """
    from penstock.coord.embedded_zookeeper import EmbeddedZooKeeper

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
        raise SettingError(f"{text!r} is not a list of ports: write numbers separated by commas")
    return [int(part) for part in parts] or None
