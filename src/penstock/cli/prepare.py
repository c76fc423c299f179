"""``penstock prepare``: what a machine does once, so that Spark starts sooner ever after."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.class_archive import archive_folder, find_archive
from penstock.cli.failing import user_errors
from penstock.cli.output import Output
from penstock.java import check_java


@user_errors
def prepare(
    output: Annotated[Output, typer.Option("-o", "--output", help="What to print.")] = Output.TEXT,
) -> None:
    """Make an archive of Spark's classes, unless there is one: drivers and executors start sooner with it.

    It takes half a minute and 180 MB of disk, in the Python environment that Penstock is installed in. Make
    it anew like this after an update of Java or PySpark.
    """
    check_java()
    found = find_archive(archive_folder())
    made = found is None
    if found is None:
        from penstock.spark.preparing import prepare as make

        if output is Output.TEXT:
            typer.echo("making an archive of Spark's classes, which takes half a minute …", err=True)
        found = make()
    if output is Output.JSON:
        typer.echo(json.dumps({"archive": str(found), "made": made}))
    else:
        typer.echo(f"Spark starts from {found}")
