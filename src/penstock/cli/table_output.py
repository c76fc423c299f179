"""Prints answers of a cluster as tables or JSON, once or repeatedly."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from penstock.cli.command_options import Output
from penstock.web.cluster_access import UnreachableError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

T = TypeVar("T")

REFRESH_SECONDS = 2.0
"""Seconds between two updates."""
_WIDE = 240
"""Width of a table that is not written to a terminal: wide enough that no words are split."""
_STYLES = {"RUNNING": "green", "FAILED": "red", "PENDING": "yellow", "STARTING": "yellow", "ENDING": "yellow"}


def print_view(
    read: Callable[[], T],
    render: Callable[[T, float], RenderableType],
    output: Output,
    watch: bool,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Call ``read`` and print its result; with ``watch`` repeatedly until Ctrl-C, which is then not an error.

    Masters that cannot be reached after the first output, for example during an election, are asked again.
    """
    found = read()
    _print(found, render, output, watch)
    if not watch:
        return
    try:
        while True:
            sleep(REFRESH_SECONDS)
            try:
                found = read()
            except UnreachableError as error:
                typer.echo(f"error: {error}", err=True)
            else:
                _print(found, render, output, watch)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _print(found: T, render: Callable[[T, float], RenderableType], output: Output, watch: bool) -> None:
    if output is Output.JSON:
        typer.echo(json.dumps(found))
        return
    console = make_console()
    if watch:
        console.clear()
    console.print(render(found, time.time()))


def make_console() -> Console:
    """Return the console for tables. Names in tables are not interpreted as markup."""
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


def make_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]], right: str = "") -> Table:
    """Return a table; columns whose heading is a word of ``right`` are aligned to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(*headings, title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for column, heading in zip(table.columns, headings, strict=True):
        column.justify = "right" if heading in right.split() else "left"
        column.overflow = "fold"
    for row in rows:
        cells = [escape_unprintable(str(cell)) for cell in row]
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    return table


def escape_unprintable(text: str, keep: str = "") -> str:
    r"""Return a text with control characters escaped, so that it cannot control the terminal.

    >>> escape_unprintable("\x1b[2Jgone")
    '\\x1b[2Jgone'
    """
    return "".join(
        character
        if character.isprintable() or character in keep
        else character.encode("unicode_escape").decode()
        for character in text
    )


def format_age(since: float, now: float) -> str:
    """Return the time since a moment, in one unit.

    >>> format_age(100.0, 105.0), format_age(0.0, 7200.0), format_age(100.0, 90.0)
    ('5s', '2h', '0s')
    """
    seconds = max(0.0, now - since)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def format_bytes(count: float) -> str:
    """Return a number of bytes in a suitable unit.

    >>> format_bytes(2 << 30), format_bytes(1536 << 10), format_bytes(500)
    ('2.0 GiB', '1.5 MiB', '500 B')
    """
    for unit, length in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= length:
            return f"{count / length:.1f} {unit}"
    return f"{count:.0f} B"
