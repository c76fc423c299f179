"""``penstock rebalance``: evens the load of nodes out."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.cli.cluster_options import Form, MasterUrl, connect_client
from penstock.cli.failing import user_errors
from penstock.cli.output import Output


@user_errors
def rebalance(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would move.")] = False,
    output: Form = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """Move jobs from full nodes to emptier ones; they go on there from where they are."""
    with connect_client(master_url) as client:
        done = client.rebalance(dry_run)
    if output is Output.JSON:
        typer.echo(json.dumps(done))
        return
    for move in done["moves"]:
        typer.echo(f"{move['job']}: {move['origin']} -> {move['target']} ({move['reason']})")
    if not done["moves"]:
        typer.echo("nothing to move", err=True)
