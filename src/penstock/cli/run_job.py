"""``penstock run``: a job on this machine, or on any Spark master, from this terminal."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from penstock.cli.exit_codes import INTERRUPTED
from penstock.cli.failed_run import failure_message
from penstock.cli.failing import user_errors
from penstock.cli.output import Output
from penstock.cli.param_options import Param
from penstock.cli.progress import Progress
from penstock.durations import read_duration
from penstock.errors import PenstockError, SettingError, connector_call
from penstock.graph.ends import Source
from penstock.graph.loading import load_job
from penstock.parameters import params_set_to, read_params
from penstock.spark.settings import read_conf

if TYPE_CHECKING:
    from penstock.engine.handle import Handle
    from penstock.engine.report import Report
    from penstock.graph.job import Job

T = TypeVar("T")
U = TypeVar("U")


@user_errors
def run(
    target: Annotated[str, typer.Argument(metavar="FILE[:JOB]", help="The file that defines the job.")],
    for_: Annotated[str | None, typer.Option("--for", metavar="30s", help="Run this long.")] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="drained", help="Run until everything is processed.")
    ] = None,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="Any Spark master; local[*] by default.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting; repeatable.")
    ] = None,
    param: Param = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget where the last run ended.")] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print the report.")] = Output.TEXT,
) -> None:
    """Run a job until Ctrl-C, for a time, or until it is drained.

    Ctrl-C stops after the batch that runs; while Spark starts, and the second time, it stops at once.
    SIGHUP, where it does not come from a terminal that closes, reads FILE again and changes the job in place.
    Exit codes: 0 the run ended as asked, 1 the job failed or is wrong, 2 wrong usage, 130 stopped at once.
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

    from penstock.spark.run import start

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
            if stop.interrupted:  # Whatever it is, it comes of that.
                raise KeyboardInterrupt from None
            raise PenstockError(failure_message(job.name, error)) from error
    if output is Output.JSON:
        typer.echo(json.dumps(report.to_dict()))
    else:
        progress.conclude(report, stop.asked)


def _usage(read: Callable[[T], U], given: T) -> U:
    """Read an option; what cannot be read is wrong usage."""
    try:
        return read(given)
    except SettingError as error:
        raise typer.BadParameter(str(error)) from error


def _check_sources(job: Job) -> None:
    """Raise what keeps a source from being read, such as a log that is not there.

    A start looks again. This comes before PySpark is imported, which takes longer than all else up to here.
    """
    try:
        for vertex in job.vertices:
            if isinstance(vertex.operator, Source):
                with connector_call(job.name, vertex.name):
                    vertex.operator.begin()
    except PenstockError as error:
        raise PenstockError(failure_message(job.name, error)) from error


class _StopOnSignal:
    """Asks a run to stop at the first signal, and leaves at the second or while Spark is starting."""

    def __init__(self, job: str) -> None:
        self.asked = False
        self.starting = True
        self.interrupted = False
        self._job = job
        # While Spark starts, what is written to standard error takes another way, and may come too late.
        self._stderr = os.dup(2)
        signal.signal(signal.SIGINT, self._handle)
        signal.signal(signal.SIGTERM, self._handle)

    def __call__(self) -> bool:
        return self.asked

    def _handle(self, number: int, frame: FrameType | None) -> Any:  # noqa: ARG002
        if self.asked:
            # Java ends when this process does: its standard input closes.
            os._exit(INTERRUPTED)
        self.asked = True
        if self.starting and not _is_spark_up():
            from penstock.cli.interrupting import kill_descendants

            self.interrupted = True
            clear = "\r\033[K" if os.isatty(self._stderr) else ""
            os.write(self._stderr, f"{clear}{self._job}: interrupted while Spark was starting\n".encode())
            kill_descendants()
            raise KeyboardInterrupt


def _is_spark_up() -> bool:
    from penstock.spark.session import is_open

    return is_open()


class _ReloadOnSignal:
    """Reads a job's file again at a signal, and changes the running job."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._asked = False
        # A terminal that closes says the same, and then the job shall end with it.
        if not sys.stderr.isatty() and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            signal.signal(signal.SIGHUP, self._handle)

    def reload_if_asked(self, handle: Handle, progress: Progress) -> None:
        """Change the job if that was asked for; what cannot be is said, and the job runs on."""
        if not self._asked:
            return
        self._asked = False
        try:
            done = handle.reconfigure(load_job(self._target))
        except PenstockError as error:
            handle.check()  # If the job itself has ended, that is another matter.
            progress.note(f"not changed: {error}")
        else:
            changes = "; ".join(done.changes) or "nothing new"
            progress.note(f"changed from batch {done.batch} on, in {done.seconds:.1f} s: {changes}")

    def _handle(self, number: int, frame: FrameType | None) -> Any:  # noqa: ARG002
        self._asked = True
