"""``penstock key``: the first step to a cluster on several machines."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.cli.daemon_options import ClusterFolder
from penstock.cli.failing import user_errors
from penstock.cli.local_cluster import cluster_folder as own_folder
from penstock.cli.output import Output
from penstock.keyring import KEY_FILE, TOKEN_FILE, open_keyring


@user_errors
def key(
    cluster_folder: ClusterFolder = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="What to print.")] = Output.TEXT,
) -> None:
    """Make the key of a cluster, unless there is one, and say where it is.

    Masters and supervisors need the key: copy its file to their machines, with mode 600. Users need the
    token, which is made from the key. Neither is printed.
    """
    folder = (cluster_folder or own_folder()).absolute()
    open_keyring(folder, create=True)
    files = {"key": str(folder / KEY_FILE), "token": str(folder / TOKEN_FILE)}
    if output is Output.JSON:
        typer.echo(json.dumps(files))
        return
    typer.echo(f"for masters and supervisors: {files['key']}")
    typer.echo(f"for users:                   {files['token']}")
