"""The options that say how a job is replicated; ``submit`` and ``update`` have them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.graph.replication import REPLICATION_CHOICES

K = Annotated[
    int | None,
    typer.Option("--k", min=0, max=100, metavar="N", help="How many nodes may be lost without a gap."),
]
Recovery = Annotated[
    str | None,
    typer.Option("--recovery", metavar="snapshot|next-window", help="How a new replica comes to its state."),
]
Replication = Annotated[
    str | None,
    typer.Option(
        "--replication", metavar="active|standby", help="Output is of whoever is first, or of the primary."
    ),
]
Standby = Annotated[
    str | None,
    typer.Option("--standby", metavar="warm|none", help="With k=0: keep a second replica ready."),
]

_CHOICES = {
    setting: {value or "none": value for value in values} for setting, values in REPLICATION_CHOICES.items()
}


def read_replication(
    k: int | None, recovery: str | None, replication: str | None, standby: str | None
) -> dict[str, Any]:
    """Return what was given, by name. What is no choice is wrong usage.

    >>> read_replication(1, None, "standby", None)
    {'k': 1, 'replication': 'standby'}
    """
    given = {"recovery": recovery, "replication": replication, "standby": standby}
    found: dict[str, Any] = {} if k is None else {"k": k}
    for name, value in given.items():
        if value is None:
            continue
        if value not in _CHOICES[name]:
            choices = " or ".join(repr(choice) for choice in _CHOICES[name])
            raise typer.BadParameter(f"--{name} takes {choices}, not {value!r}")
        found[name] = _CHOICES[name][value]
    return found
