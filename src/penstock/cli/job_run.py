"""``penstock run``.

Run a job in this process, show its progress, stop on signals, and report a failed run with the lines of the
user's code.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import psutil
import typer

from penstock.cli.command_errors import INTERRUPTED, user_errors
from penstock.cli.command_options import Output, Param
from penstock.engine.batch_report import Report
from penstock.errors import ConnectorError, PenstockError, SettingError, TaskError
from penstock.graph.connector_api import Source
from penstock.graph.job_loader import load_job
from penstock.log import home
from penstock.parameters import params_set_to, read_params
from penstock.setting_values import read_duration
from penstock.spark.spark_settings import read_conf
from penstock.vertex_calls import connector_call

if TYPE_CHECKING:
    from penstock.engine.driver.job_handle import Handle
    from penstock.graph.job import Job


def kill_descendants() -> None:
    """Kill all descendants of this process."""
    found: dict[int, psutil.Process] = {}
    # A suspended process starts no others, so all are found when a pass finds no new one.
    while new := [one for one in psutil.Process().children(recursive=True) if one.pid not in found]:
        for process in new:
            found[process.pid] = process
            with suppress(psutil.NoSuchProcess):
                process.suspend()
    for process in found.values():
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(list(found.values()), timeout=5)


_FRAME = re.compile(r'  File "(.+)", line (\d+), in (.+)\n(?:    (\S.*)\n)?')
_MAX_FRAMES = 8
"""Maximum number of frames to print: an endless recursion has a thousand."""

_LIBRARY_PATHS = (str(Path(__file__).parents[1]) + os.sep, "/pyspark/", "/cloudpickle/", "<frozen ")


def failure_message(job: str, error: PenstockError) -> str:
    """Return the message to print for an error; write its full trace to a file in the job's folder."""
    text = str(error)
    where = getattr(error, "__notes__", [])
    # Errors of options and of the machine are not prefixed with a job's name.
    named = where or f"job {job!r}" in text or isinstance(error, SettingError)
    lines = [text if named else f"job {job!r}: {text}", *(f"  {note}" for note in where)]
    trace = getattr(error, "trace", "")
    if isinstance(error, TaskError | ConnectorError):
        lines += user_frames(trace)
    if trace:
        file = _write_trace(job, f"{error}\n\n{trace}")
        lines += [f"  the full trace is in {file}"] if file is not None else []
    return "\n".join(lines)


def user_frames(trace: str) -> list[str]:
    """Return the frames of a trace that are in user code, the innermost last.

    >>> user_frames('  File "job.py", line 6, in ratio\\n    100 // r.value\\nZeroDivisionError')
    ['  in job.py, line 6, in ratio: 100 // r.value']
    """
    found = []
    for file, line, function, code in _FRAME.findall(trace):
        if not any(part in file for part in _LIBRARY_PATHS):
            found.append(f"  in {file}, line {line}, in {function}" + (f": {code}" if code else ""))
    return found[-_MAX_FRAMES:]


def _write_trace(job: str, text: str) -> Path | None:
    """Write a trace to the job's folder; ignore disk errors."""
    file = home() / "jobs" / job / "trace.txt"
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(text)
        return file
    return None


_LINE_SECONDS = 2.0
"""Seconds between two progress lines when standard error is not a terminal."""


class Progress:
    """Prints the progress of a run to standard error."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._live = sys.stderr.isatty()
        self._shown_at = 0.0
        self._batches = -1
        self._before = (0.0, 0)
        self._rate = 0.0

    def __enter__(self) -> Progress:
        self._write(f"{self._job}: starting Spark …")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def show(self, report: Report) -> None:
        """Show the progress of the run."""
        now = time.monotonic()
        if not self._live and (report.batches == self._batches or now - self._shown_at < _LINE_SECONDS):
            return
        then, records = self._before
        if now - then >= 1.0:
            self._rate = (report.records_in - records) / (now - then) if then else 0.0
            self._before = (now, report.records_in)
        self._shown_at, self._batches = now, report.batches
        lag = "?" if report.lag is None else f"{report.lag:,}"
        self._write(
            f"{self._job}: in {report.records_in:,}  out {report.records_out:,}  {self._rate:,.0f}/s  "
            f"lag {lag}  batch {report.batch_seconds * 1000:,.0f} ms  {_side_counts(report, '  ')}"
        )

    def note(self, text: str) -> None:
        """Print a message without garbling the progress line."""
        if text:
            sys.stderr.write(("\r\033[K" if self._live else "") + text.rstrip() + "\n")

    def conclude(self, report: Report, asked: bool) -> None:
        """Print the totals of the run."""
        how = "stopped" if asked else "done"
        batches = "1 batch" if report.batches == 1 else f"{report.batches:,} batches"
        records = "1 record" if report.records_in == 1 else f"{report.records_in:,} records"
        self._shown_at = 0.0
        lines = [
            f"{self._job}: {how} after {batches} in {report.seconds:.1f} s, "
            f"{records} in, {report.records_out:,} out, {_side_counts(report, ', ')}"
        ]
        width = max(map(len, report.vertices))
        for name, vertex in report.vertices.items():
            lines.append(f"  {name:<{width}}  in {vertex.records_in:>12,}  out {vertex.records_out:>12,}")
        sys.stderr.write("\n".join(lines) + "\n")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r\033[K{text}" if self._live else f"{text}\n")
        sys.stderr.flush()


def _side_counts(report: Report, between: str) -> str:
    """Return the counts of records in side streams; late and failed ones only if there are any."""
    counts = [("discarded", report.discarded)]
    counts += [(name, count) for name, count in (("late", report.late), ("errors", report.errors)) if count]
    if between == ", ":
        return between.join(f"{count:,} {name}" for name, count in counts)
    return between.join(f"{name} {count:,}" for name, count in counts)


T = TypeVar("T")
U = TypeVar("U")


@user_errors
def run(
    target: Annotated[str, typer.Argument(metavar="FILE[:JOB]", help="The file that defines the job.")],
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="Stop this long after the query has started: 250ms, 30s, 1.5m, 1h, or a number of seconds.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="drained",
            help="Stop when all records of the sources are processed, including those in loops.",
        ),
    ] = None,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="A Spark master; local[*] by default.")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf",
            metavar="NAME=VALUE",
            help="A Spark setting, which overrides those of the job and of Penstock; repeatable.",
        ),
    ] = None,
    param: Param = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Start from scratch: discard the positions, state and records in transit of the last run. "
            "Logs are kept.",
        ),
    ] = False,
    output: Annotated[
        Output,
        typer.Option(
            "-o", "--output", help="The report: a table on standard error, or JSON on standard output."
        ),
    ] = Output.TEXT,
) -> None:
    """Run a job until Ctrl-C, for a time, or until it is drained.

    Ctrl-C stops after the current batch; while Spark starts, or the second time, it stops at once. SIGHUP,
    unless it comes from a closing terminal, reads FILE again and changes the job in place. Exit codes: 0 the
    run ended as requested, 1 the job failed or is not valid, 2 wrong usage, 130 stopped at once.
    """
    if for_ is not None and until is not None:
        raise typer.BadParameter("--for and --until exclude each other")
    if until not in (None, "drained"):
        raise typer.BadParameter(f"--until takes 'drained', not {until!r}")
    limit = _usage(read_duration, for_) if for_ is not None else until
    settings = _usage(read_conf, conf or [])
    with params_set_to(_usage(read_params, param or [])):
        _run(target, limit, master, settings, fresh, output)


def _run(
    target: str,
    limit: str | float | None,
    master: str | None,
    settings: dict[str, str],
    fresh: bool,
    output: Output,
) -> None:
    job = load_job(target)
    job.validate()
    _check_sources(job)

    from penstock.spark.spark_runtime import start

    reload = _ReloadOnSignal(target)
    with Progress(job.name) as progress:
        stop = _StopOnSignal(job.name)

        def show(report: Report) -> None:
            progress.show(report)
            reload.reload_if_asked(handle, progress)

        try:
            with start(job, master=master, conf=settings, fresh=fresh, on_progress=show) as handle:
                stop.starting = False
                handle.follow(limit, stop=stop)
            report = handle.report
        except PenstockError as error:
            if stop.interrupted:  # Any error now is a consequence of the interrupt.
                raise KeyboardInterrupt from None
            raise PenstockError(failure_message(job.name, error)) from error
    if output is Output.JSON:
        typer.echo(json.dumps(report.to_dict()))
    else:
        progress.conclude(report, stop.asked)


def _usage(read: Callable[[T], U], given: T) -> U:
    """Parse the value of an option; report an invalid value as wrong usage."""
    try:
        return read(given)
    except SettingError as error:
        raise typer.BadParameter(str(error)) from error


def _check_sources(job: Job) -> None:
    """Raise the error that prevents reading a source, such as a missing log.

    The start of the job checks the sources again; this check comes before the slow import of PySpark.
    """
    try:
        for vertex in job.vertices:
            if isinstance(vertex.operator, Source):
                with connector_call(job.name, vertex.name):
                    vertex.operator.begin()
    except PenstockError as error:
        raise PenstockError(failure_message(job.name, error)) from error


class _StopOnSignal:
    """Requests a stop at the first signal; exits at the second, or while Spark is starting."""

    def __init__(self, job: str) -> None:
        self.asked = False
        self.starting = True
        self.interrupted = False
        self._job = job
        # While Spark starts, standard error is redirected through a thread, and output may appear too late.
        self._stderr = os.dup(2)
        signal.signal(signal.SIGINT, self._handle)
        signal.signal(signal.SIGTERM, self._handle)

    def __call__(self) -> bool:
        return self.asked

    def _handle(self, number: int, frame: FrameType | None) -> Any:  # noqa: ARG002
        if self.asked:
            # Java ends with this process, because its standard input closes.
            os._exit(INTERRUPTED)
        self.asked = True
        if self.starting and not _is_spark_up():
            self.interrupted = True
            clear = "\r\033[K" if os.isatty(self._stderr) else ""
            os.write(self._stderr, f"{clear}{self._job}: interrupted while Spark was starting\n".encode())
            kill_descendants()
            raise KeyboardInterrupt


def _is_spark_up() -> bool:
    from penstock.spark.spark_session import is_open

    return is_open()


class _ReloadOnSignal:
    """Reloads a job's file on SIGHUP, and changes the running job."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._asked = False
        # A closing terminal sends SIGHUP as well; then the job has to end.
        if not sys.stderr.isatty() and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            signal.signal(signal.SIGHUP, self._handle)

    def reload_if_asked(self, handle: Handle, progress: Progress) -> None:
        """Change the job if requested; print why a change is not possible, and keep the job running."""
        if not self._asked:
            return
        self._asked = False
        try:
            done = handle.reconfigure(load_job(self._target))
        except PenstockError as error:
            handle.check()  # Raises if the job itself has failed.
            progress.note(f"not changed: {error}")
        else:
            changes = "; ".join(done.changes) or "no changes"
            progress.note(f"changed from batch {done.batch} on, in {done.seconds:.1f} s: {changes}")

    def _handle(self, number: int, frame: FrameType | None) -> Any:  # noqa: ARG002
        self._asked = True
