"""``penstock``: the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import cluster_commands, daemon_commands, explain, log, place, run_job, simulate

app = typer.Typer(
    name="penstock",
    help="Stream jobs in Python that run on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def penstock(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Stream jobs in Python that run on Spark."""


app.command("run")(run_job.run)
app.command("explain")(explain.explain)
app.command("place")(place.place)
app.command("simulate")(simulate.simulate_command)
app.add_typer(log.app, name="log")
cluster_commands.register(app)
daemon_commands.register(app)


def run() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    run()
