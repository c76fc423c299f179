"""``penstock doctor``: looks for what would keep a cluster from running here, and says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.doctor_checks import CHECKS, FAILED, OK, DoctorContext, Finding
from penstock.cli.exit_codes import FAILED as EXIT_FAILED
from penstock.cli.failing import user_errors
from penstock.cli.local_cluster import cluster_folder
from penstock.cli.output import Output
from penstock.daemons.layout import PORT, read_layout
from penstock.local_paths import local_path
from penstock.log import home

_COLOURS = {OK: "green", FAILED: "red"}


@user_errors
def doctor(
    connect: Annotated[
        str, typer.Option("--connect", metavar="HOST:PORT,…", help="A ZooKeeper to look at.")
    ] = "",
    storage: Annotated[
        Path | None, typer.Option("--storage", metavar="DIR", help="The folder of logs and jobs.")
    ] = None,
    port: Annotated[int, typer.Option("--port", metavar="BASE", help="The first of the ports used.")] = PORT,
    output: Annotated[Output, typer.Option("-o", "--output", help="What to print.")] = Output.TEXT,
) -> None:
    """Check Java, PySpark, ports, disk, ZooKeeper, clocks and versions.

    Exit codes: 0 a cluster can run here, perhaps with warnings; 1 something has to be done first.
    """
    cluster = cluster_folder()
    layout = read_layout(cluster)
    kept = Path(layout.storage) if layout else home()
    patient = DoctorContext(cluster, local_path("--storage", storage or kept), port, layout, connect)
    findings = [(name, check(patient)) for name, check in CHECKS]
    if output is Output.JSON:
        content = [
            {"check": name, "status": found.status, "found": found.text, "advice": found.advice}
            for name, found in findings
        ]
        typer.echo(json.dumps(content))
    else:
        _print(findings)
    if any(found.status == FAILED for _, found in findings):
        raise typer.Exit(EXIT_FAILED)


def _print(findings: list[tuple[str, Finding]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("check", "", "found", "what to do")
    for name, found in findings:
        colour = _COLOURS.get(found.status, "yellow")
        table.add_row(name, f"[{colour}]{found.status}[/]", escape(found.text), escape(found.advice))
    Console().print(table)
