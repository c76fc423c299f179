"""``penstock log create``, ``append``, ``read``, ``stat``, ``list`` and ``delete``."""

from __future__ import annotations

import functools
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from io import UnsupportedOperation
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import typer

from penstock.cli import log_maintenance
from penstock.cli.command_errors import fail, user_errors
from penstock.cli.command_options import Form, LogName, LogRoot, Output
from penstock.connect.line_input import batches, json_record, text_record
from penstock.errors import LogError, PenstockError, UnstorableValueError
from penstock.log import Log, LogStat, Retention, log_folder, log_names, tagged_json
from penstock.log.log_description import read_fsync
from penstock.record import Record


@user_errors
def delete(
    name: LogName,
    *,
    yes: Annotated[
        bool, typer.Option("--yes", help="Confirm that the log and all its records are deleted permanently.")
    ] = False,
    root: LogRoot = None,
) -> None:
    """Delete a log and all its records. A log that a known job uses is not deleted."""
    folder = log_folder(name, root)
    records = sum(part.records for part in Log.open(folder).stat().partitions)
    if folder.is_symlink():
        raise LogError(f"{folder} is a link to another place: delete the log there, then the link")
    home = folder.parent.parent
    users = [f"{job} ({place})" for job, place in users_of(name, home)]
    if users:
        raise LogError(
            f"log {name!r} is used by {', '.join(users)}, which cannot run without it: forget the job with "
            "its data first (penstock forget JOB --data), or remove its folder"
        )
    if not yes:
        raise LogError(
            f"log {name!r} has {records} records, which would be deleted permanently: confirm with --yes"
        )
    # Rename it first: no process finds a half-deleted log, and the name can be reused at once.
    renamed = folder.with_name(f".deleted-{uuid4().hex}")
    folder.rename(renamed)
    shutil.rmtree(renamed)
    typer.echo(f"deleted log {name} with {records} records", err=True)


def users_of(log: str, home: Path) -> list[tuple[str, Path]]:
    """Return the jobs below a folder that read or wrote a log in their last run, and their folders.

    A job whose structure cannot be read is included, since it may use the log.
    """
    found: list[tuple[str, Path]] = []
    for folder in _job_folders(home):
        path = folder / "job.json"
        try:
            vertices = json.loads(path.read_bytes())["vertices"]
            named = {vertex.get("options", {}).get("log") for vertex in vertices}
            job = folder.parent.name if folder.parent.parent.name == "cluster-jobs" else folder.name
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError, AttributeError):
            found.append(("a job whose structure cannot be read", path))
            continue
        if log in named:
            found.append((f"job {job!r}", folder))
    return found


def _job_folders(home: Path) -> Iterator[Path]:
    yield from sorted(home.glob("jobs/*"))
    yield from sorted(home.glob("cluster-jobs/*/*"))


app = typer.Typer(
    name="log",
    help="Create, fill, read and inspect logs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
@user_errors
def create(
    name: LogName,
    *,
    partitions: Annotated[
        int, typer.Option(min=1, help="Number of partitions; it cannot be changed later.")
    ] = 1,
    fsync: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="When an append waits for the disk: none, segment or full; it cannot be changed later.",
        ),
    ] = "none",
    size: log_maintenance.Bytes = None,
    age: log_maintenance.Age = None,
    consumed: log_maintenance.Consumed = None,
    root: LogRoot = None,
) -> None:
    """Create a log."""
    kept = log_maintenance.retention_of(Retention(), size, age, consumed)
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
        bool,
        typer.Option(
            "--json", help="Each line is JSON: a value, or an object with value and optionally key and ts."
        ),
    ] = False,
    key_separator: Annotated[
        str | None, typer.Option(metavar="SEP", help=r"The separator after the key of a line; \t is a tab.")
    ] = None,
    batch: Annotated[
        int,
        typer.Option(min=1, help="Number of lines that become visible together; fewer if the input pauses."),
    ] = 10_000,
    make: Annotated[bool, typer.Option("--create", help="Create the log if it does not exist.")] = False,
    root: LogRoot = None,
) -> None:
    """Append the lines of standard input, each as one record."""
    if key_separator is not None and (as_json or not key_separator):
        raise typer.BadParameter(
            "it needs at least one character and cannot be combined with --json", param_hint="--key-separator"
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
    except UnsupportedOperation:  # Standard input is not a real file, and cannot be polled.
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
        int | None,
        typer.Option(
            "--from",
            min=0,
            metavar="POS",
            help="The first position, by default the beginning; needs --partition if the log has several.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N records.")] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Wait for new records.")] = False,
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
        # A string may contain half of a surrogate pair, which UTF-8 cannot encode.
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
    return value if type(value) is str else tagged_json.dumps(value)


def _json_line(partition: int, position: int, record: Record) -> str:
    key, value, ts = map(tagged_json.dumps, record)
    return f'{{"partition":{partition},"position":{position},"key":{key},"value":{value},"ts":{ts}}}\n'


@app.command()
@user_errors
def stat(
    name: LogName,
    *,
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify every segment completely, not only its header.")
    ] = False,
    output: Form = Output.TEXT,
    root: LogRoot = None,
) -> None:
    """Print the size of a log; the exit code is 1 when a segment is damaged."""
    found = Log.open(log_folder(name, root)).stat(verify=verify)
    if output is Output.JSON:
        typer.echo(json.dumps(asdict(found)))
    else:
        _table(found)
        if found.readers:
            log_maintenance.print_readers(found.name, found.readers)
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
    typer.echo(
        f"id {found.id or 'none'}, fsync {found.fsync}, keeps {log_maintenance.describe(found.retention)}"
    )
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


app.command("readers")(log_maintenance.readers)
app.command("forget")(log_maintenance.forget)
app.command("retain")(log_maintenance.retain)
app.command("compact")(log_maintenance.compact)
app.command("delete")(delete)


if __name__ == "__main__":
    app()
