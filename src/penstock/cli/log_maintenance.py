"""``penstock log retain``, ``compact``, ``readers`` and ``forget``: keep a log small."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, TypeVar

import typer

from penstock.cli.command_errors import user_errors
from penstock.cli.command_options import Form, LogName, LogRoot, Output
from penstock.log import Log, ReaderStat, Retention, log_folder
from penstock.setting_values import read_duration, read_size

Number = TypeVar("Number", int, float)

Bytes = Annotated[
    str | None,
    typer.Option("--bytes", metavar="SIZE", help="Maximum size of the log: 500MB, 64GiB, or 'off'."),
]
Age = Annotated[
    str | None,
    typer.Option("--age", metavar="DURATION", help="Time that a record is kept: 12h, 7d, or 'off'."),
]
Consumed = Annotated[
    bool | None,
    typer.Option("--consumed/--no-consumed", help="Delete records that every reader has consumed."),
]


@user_errors
def retain(
    name: LogName, *, size: Bytes = None, age: Age = None, consumed: Consumed = None, root: LogRoot = None
) -> None:
    """Set the retention of a log and apply it now; without options, only apply it."""
    log = Log.open(log_folder(name, root))
    if not (size is None and age is None and consumed is None):
        log.set_retention(retention_of(log.retention, size, age, consumed))
    typer.echo(f"log {name} keeps {describe(log.retention)}", err=True)
    for cut in log.retain():
        typer.echo(
            f"partition {cut.partition}: deleted {_counted(cut.segments, 'segment')} before position"
            f" {cut.position}, {cut.bytes} bytes: {cut.reason}",
            err=True,
        )


def retention_of(old: Retention, size: str | None, age: str | None, consumed: bool | None) -> Retention:
    """Return the retention of a log with the given rules changed."""
    return Retention(
        _changed(old.bytes, size, read_size),
        _changed(old.seconds, age, read_duration),
        old.consumed if consumed is None else consumed,
    )


def _changed(old: Number | None, text: str | None, read: Callable[[str], Number]) -> Number | None:
    if text is None:
        return old
    return None if text == "off" else read(text)


def describe(retention: Retention) -> str:
    """Return a retention as text.

    >>> describe(Retention(bytes=500, consumed=True))
    'at most 500 bytes, and only records that some reader has not consumed'
    """
    rules = []
    if retention.bytes is not None:
        rules.append(f"at most {retention.bytes} bytes")
    if retention.seconds is not None:
        rules.append(f"nothing older than {retention.seconds:g} seconds")
    if retention.consumed:
        rules.append("only records that some reader has not consumed")
    return ", and ".join(rules) or "everything"


@user_errors
def compact(name: LogName, *, root: LogRoot = None) -> None:
    """Merge small segments into larger ones. Records and their positions do not change."""
    for done in Log.open(log_folder(name, root)).compact():
        typer.echo(f"partition {done.partition}: {done.before} segments before, {done.after} now", err=True)


@user_errors
def readers(name: LogName, *, output: Form = Output.TEXT, root: LogRoot = None) -> None:
    """Print the readers of a log with their positions and lag."""
    found = Log.open(log_folder(name, root)).stat().readers
    if output is Output.JSON:
        typer.echo(json.dumps([asdict(reader) for reader in found]))
    elif found:
        print_readers(name, found)
    else:
        typer.echo(f"log {name} has no readers", err=True)


def print_readers(name: str, found: Sequence[ReaderStat]) -> None:
    """Print a table of readers."""
    from rich.console import Console
    from rich.table import Table

    table = Table("reader", "positions", "lag", "seconds ago", title=f"readers of {name}")
    for column in table.columns[1:]:
        column.justify = "right"
    for reader in found:
        positions = " ".join(f"{number}:{position}" for number, position in sorted(reader.positions.items()))
        table.add_row(reader.name, positions, str(reader.lag), f"{max(0.0, time.time() - reader.time):.0f}")
    Console().print(table)


@user_errors
def forget(
    name: LogName,
    reader: Annotated[str, typer.Argument(metavar="READER", help="The name of the reader.")],
    *,
    root: LogRoot = None,
) -> None:
    """Remove a reader that will not return, so that it does not delay retention."""
    Log.open(log_folder(name, root)).forget_reader(reader)
    typer.echo(f"removed reader {reader} of log {name}", err=True)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
