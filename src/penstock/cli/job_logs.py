"""``penstock logs``: the log lines of a job's processes and code from all nodes, in order of time."""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command_errors import user_errors
from penstock.cli.command_options import Form, JobName, MasterUrl, Output, connect_client, usage
from penstock.cli.table_output import escape_unprintable
from penstock.errors import SettingError
from penstock.setting_values import read_duration
from penstock.web.cluster_access import UnreachableError

if TYPE_CHECKING:
    from penstock.web.master_client import MasterClient

FOLLOW_SECONDS = 1.0
_PAGE = 1000
_FIRST = ("timestamp", "level", "event", "process", "node", "job")
_OUTPUT_FIELDS = (*_FIRST, "vertex", "pid", "stream", "replica", "dropped", "exception")
"""Fields that are not appended to a line that user code has printed or logged."""


class Level(StrEnum):
    """The level of a line, the lowest first."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


_SEVERITY = {level.value: number for number, level in enumerate(Level)}


@user_errors
def logs(
    job: JobName,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Print new lines as they arrive, until Ctrl-C.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only lines since then: 10m for ten minutes ago, or 2026-01-31T12:00:00.",
        ),
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, metavar="N", help="Only the last N lines.")
    ] = None,
    vertex: Annotated[
        str | None, typer.Option("--vertex", metavar="NAME", help="Only lines of the code of this vertex.")
    ] = None,
    level: Annotated[
        Level, typer.Option("--level", help="Only lines of this level and above.")
    ] = Level.DEBUG,
    output: Form = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """Print the log lines of a job's processes and the output of its code, from all nodes.

    With -o json, a line is a JSON object.
    """
    earliest = "" if since is None else usage(lambda text: read_time(text, datetime.now(UTC)), since)

    def wanted(line: Mapping[str, Any]) -> bool:
        return (
            str(line.get("timestamp", "")) >= earliest
            and (vertex is None or line.get("vertex") == vertex)
            and severity(line) >= _SEVERITY[level]
        )

    with connect_client(master_url) as client:
        try:
            pages = _Pages(client, job)
            lines = filter(wanted, pages.read_available())
            for line in lines if tail is None else _last(lines, tail):
                _print(line, output)
            while follow:
                time.sleep(FOLLOW_SECONDS)
                for line in filter(wanted, pages.read_new()):
                    _print(line, output)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


class _Pages:
    """Reads a job's log page by page and remembers its position."""

    def __init__(self, client: MasterClient, job: str) -> None:
        self._client = client
        self._job = job
        self._cursor = ""

    def read_available(self) -> Iterator[Mapping[str, Any]]:
        """Yield all lines after the position that exist now."""
        while True:
            page = self._client.logs(self._job, self._cursor, _PAGE)
            self._cursor = page["cursor"]
            yield from page["lines"]
            # A page can be short because several nodes share it: only an empty page is the last.
            if not page["lines"]:
                return

    def read_new(self) -> Iterator[Mapping[str, Any]]:
        """Yield new lines; none while the masters cannot be reached, for example during an election."""
        try:
            yield from self.read_available()
        except UnreachableError as error:
            typer.echo(f"error: {error}", err=True)


def _last(lines: Iterable[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    """Return the latest lines, in order. Each page is sorted, but pages may overlap in time."""
    latest = heapq.nlargest(
        count, enumerate(lines), key=lambda item: (str(item[1].get("timestamp", "")), item[0])
    )
    return [line for _, line in reversed(latest)]


def read_time(text: str, now: datetime) -> str:
    """Convert a duration before now, or a time, to the timestamp format of log lines.

    >>> read_time("10m", datetime(2026, 1, 1, 12, 30, tzinfo=UTC))
    '2026-01-01T12:20:00.000000Z'
    """
    try:
        return _stamp(now - timedelta(seconds=read_duration(text)))
    except (SettingError, OverflowError):
        pass
    try:
        return _stamp(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        message = f"{text!r} is neither a duration such as 10m nor a time such as 2026-01-31T12:00"
        raise SettingError(message) from None


def _stamp(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def severity(line: Mapping[str, Any]) -> int:
    """Return the rank of a line's level; an unknown level counts as info.

    >>> severity({"level": "error"}) > severity({"level": "level 25"}) == severity({"level": "info"})
    True
    """
    return _SEVERITY.get(str(line.get("level")), _SEVERITY[Level.INFO])


def format_line(line: Mapping[str, Any]) -> str:
    """Return a line as text: the event, then its other fields.

    Output of user code is prefixed with the name of its vertex, or ``-`` outside of any vertex. All but its
    first line are indented, so that no output can look like another log line.

    >>> format_line({"timestamp": "2026-01-01T00:00:00Z", "level": "info", "event": "up", "pid": 7})
    '2026-01-01T00:00:00Z info     up pid=7'
    >>> format_line({"timestamp": "2026-01-01T00:00:00Z", "level": "info", "event": "a", "stream": "stdout"})
    '2026-01-01T00:00:00Z info     [-] a'
    """
    place = "".join(f"{line[name]} " for name in ("node", "process") if line.get(name))
    left_out: tuple[str, ...] = _FIRST
    event = str(line.get("event", ""))
    if "stream" in line:
        left_out = _OUTPUT_FIELDS
        place += f"[{line.get('vertex') or '-'}] "
        event = "\n".join([event, *filter(None, [line.get("exception")])]).replace("\n", "\n    ")
    more = "".join(f" {name}={value}" for name, value in line.items() if name not in left_out)
    text = f"{line.get('timestamp', '')} {line.get('level', ''):<8} {place}{event}{more}"
    return escape_unprintable(text, keep="\n\t")


def _print(line: Mapping[str, Any], output: Output, echo: Callable[[str], None] = typer.echo) -> None:
    echo(json.dumps(line) if output is Output.JSON else format_line(line))
