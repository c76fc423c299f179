"""Arguments and options that several ``penstock log`` commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import Output

LogName = Annotated[str, typer.Argument(metavar="NAME", help="The log's name.")]
LogRoot = Annotated[
    Path | None,
    typer.Option("--root", metavar="DIR", help="Where logs live, instead of $PENSTOCK_HOME or ~/.penstock."),
]
Form = Annotated[Output, typer.Option("-o", "--output", help="What to print.")]
