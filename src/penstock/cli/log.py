"""``penstock log``: make, fill, read and inspect logs."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from io import UnsupportedOperation
from typing import Annotated, Any

import typer

from penstock.cli import log_delete, log_upkeep
from penstock.cli.failing import fail, user_errors
from penstock.cli.log_options import Form, LogName, LogRoot
from penstock.cli.output import Output
from penstock.errors import PenstockError, UnstorableValueError
from penstock.log import Log, LogStat, Retention, log_folder, log_names, tagged
from penstock.log.durability import read_fsync
from penstock.log.lines import batches, json_record, text_record
from penstock.record import Record

app = typer.Typer(
    name="log",
    help="Make, fill, read and inspect logs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
@user_errors
def create(
    name: LogName,
    *,
    partitions: Annotated[int, typer.Option(min=1, help="How many partitions it has, for good.")] = 1,
    fsync: Annotated[
        str,
        typer.Option(
            metavar="LEVEL", help="How much an append waits for the disk, for good: none, segment or full."
        ),
    ] = "none",
    size: log_upkeep.Bytes = None,
    age: log_upkeep.Age = None,
    consumed: log_upkeep.Consumed = None,
    root: LogRoot = None,
) -> None:
    """Make a log."""
    kept = log_upkeep.retention_of(Retention(), size, age, consumed)
    log = Log.create(
        log_folder(name, root),
        partitions,
        fsync=read_fsync(fsync),
        retain_bytes=kept.bytes,
        retain_seconds=kept.seconds,
        retain_consumed=kept.consumed,
    )
    typer.echo(f"created {log.path}", err=True)


@app.command()
@user_errors
def append(
    name: LogName,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Each line is JSON: a value, or {key, value, ts}.")
    ] = False,
    key_separator: Annotated[
        str | None, typer.Option(metavar="SEP", help=r"What ends the key of a line; \t is a tab.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="How many lines become visible together.")] = 10_000,
    make: Annotated[bool, typer.Option("--create", help="Make the log if there is none.")] = False,
    root: LogRoot = None,
) -> None:
    """Append the lines of standard input, each as one record."""
    if key_separator is not None and (as_json or not key_separator):
        raise typer.BadParameter(
            "it takes text lines and at least one character", param_hint="--key-separator"
        )
    folder = log_folder(name, root)
    log = Log.create(folder, exist_ok=True) if make else Log.open(folder)
    separator = None if key_separator is None else key_separator.replace("\\t", "\t")
    parse = json_record if as_json else functools.partial(text_record, separator=separator)
    appended = 0
    try:
        for lines in _input(batch):
            log.append(_parse(lines, appended + 1, parse))
            appended += len(lines)
    except UnstorableValueError as error:
        fail(f"in the batch that begins with line {appended + 1}: {error}; none of it was appended")
    finally:
        typer.echo(f"appended {appended} record{'' if appended == 1 else 's'}", err=True)


def _parse(lines: Sequence[bytes], first: int, parse: Callable[[bytes], Record]) -> list[Record]:
    records = []
    for number, line in enumerate(lines, first):
        try:
            records.append(parse(line))
        except ValueError as error:
            raise PenstockError(
                f"line {number}: {error}; nothing from line {first} on was appended"
            ) from None
    return records


def _input(size: int) -> Iterator[Sequence[bytes]]:
    try:
        descriptor = sys.stdin.fileno()
    except UnsupportedOperation:  # not a real file: there is nothing to wait for
        lines = sys.stdin.buffer.read().removesuffix(b"\n").split(b"\n")
        yield from (lines[first : first + size] for first in range(0, len(lines), size) if lines != [b""])
    else:
        yield from batches(descriptor, size)


@app.command()
@user_errors
def read(
    name: LogName,
    *,
    partition: Annotated[int | None, typer.Option(min=0, metavar="P", help="Only this partition.")] = None,
    start: Annotated[
        int | None, typer.Option("--from", min=0, metavar="POS", help="The first position; else the begin.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N records.")] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Wait for records to come.")] = False,
    output: Form = Output.TEXT,
    root: LogRoot = None,
) -> None:
    """Print records, in order within each partition."""
    log = Log.open(log_folder(name, root))
    if start is not None and partition is None and log.partitions > 1:
        raise typer.BadParameter(
            "a position belongs to one partition: give --partition too", param_hint="--from"
        )
    numbers = range(log.partitions) if partition is None else [partition]
    positions = {number: log.begin(number) if start is None else start for number in numbers}
    left = limit
    for number, position, chunk in _chunks(log, positions, follow):
        shown = chunk[:left]
        lines = (
            _json_line(number, position + index, record) if output is Output.JSON else _text_line(record)
            for index, record in enumerate(shown)
        )
        # A string may hold half of a surrogate pair, which no encoding of text has.
        sys.stdout.buffer.write("".join(lines).encode("utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()
        if left is not None:
            left -= len(shown)
            if left == 0:
                return


def _chunks(log: Log, positions: dict[int, int], follow: bool) -> Iterator[tuple[int, int, list[Record]]]:
    with log.watch(list(positions)) as watch:
        while True:
            found = False
            for number, position in list(positions.items()):
                after = position
                for chunk in log.read(number, position):
                    yield number, after, chunk
                    after += len(chunk)
                found = found or after > position
                positions[number] = after
            if not follow:
                return
            if not found:
                watch.wait(1.0)


def _text_line(record: Record) -> str:
    value = _text(record.value)
    return f"{value}\n" if record.key is None else f"{_text(record.key)}\t{value}\n"


def _text(value: Any) -> str:
    return value if type(value) is str else tagged.dumps(value)


def _json_line(partition: int, position: int, record: Record) -> str:
    key, value, ts = map(tagged.dumps, record)
    return f'{{"partition":{partition},"position":{position},"key":{key},"value":{value},"ts":{ts}}}\n'


@app.command()
@user_errors
def stat(
    name: LogName,
    *,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every segment, not only its header.")
    ] = False,
    output: Form = Output.TEXT,
    root: LogRoot = None,
) -> None:
    """Print how much is in a log; the exit code is 1 when a segment is damaged."""
    found = Log.open(log_folder(name, root)).stat(verify=verify)
    if output is Output.JSON:
        typer.echo(json.dumps(asdict(found)))
    else:
        _table(found)
        if found.readers:
            log_upkeep.print_readers(found.name, found.readers)
    if found.damaged:
        raise typer.Exit(1)


def _table(found: LogStat) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = ("partition", "begin", "end", "records", "segments", "bytes", "damaged")
    table = Table(*columns, title=f"log {found.name}")
    for column in table.columns:
        column.justify = "right"
    for one in found.partitions:
        numbers = (one.partition, one.begin, one.end, one.records, one.segments, one.bytes, len(one.damaged))
        table.add_row(*map(str, numbers))
    Console().print(table)
    typer.echo(f"id {found.id or 'none'}, fsync {found.fsync}, keeps {log_upkeep.describe(found.retention)}")
    for one in found.partitions:
        for position, cause in one.damaged:
            typer.echo(f"damaged: partition {one.partition}, position {position}: {cause}")


@app.command("list")
@user_errors
def list_logs(*, output: Form = Output.TEXT, root: LogRoot = None) -> None:
    """Print all logs: partitions, records, bytes and readers."""
    found = []
    for name in log_names(root):
        one = Log.open(log_folder(name, root)).stat()
        found.append(
            {
                "name": name,
                "partitions": len(one.partitions),
                "records": sum(partition.records for partition in one.partitions),
                "segments": sum(partition.segments for partition in one.partitions),
                "bytes": sum(partition.bytes for partition in one.partitions),
                "readers": len(one.readers),
            }
        )
    if output is Output.JSON:
        typer.echo(json.dumps(found))
    elif found:
        _list(found)
    else:
        typer.echo("there are no logs", err=True)


def _list(found: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*found[0])
    for column in table.columns[1:]:
        column.justify = "right"
    for one in found:
        table.add_row(*map(str, one.values()))
    Console().print(table)


app.command("readers")(log_upkeep.readers)
app.command("forget")(log_upkeep.forget)
app.command("retain")(log_upkeep.retain)
app.command("compact")(log_upkeep.compact)
app.command("delete")(log_delete.delete)


if __name__ == "__main__":
    app()
