"""``--param`` and ``--env``: what a job is given beside its code."""

from __future__ import annotations

from typing import Annotated

import typer

Param = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=VALUE", help="What the code reads as ps.params; repeatable."),
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME[=VALUE]",
        help="A variable of its environment, alone as its node has it; repeatable.",
    ),
]
