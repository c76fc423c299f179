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
from penstock.cli.failed_run import told
from penstock.cli.failing import user_errors
from penstock.cli.output import Output
from penstock.cli.progress import Progress
from penstock.durations import read_duration
from penstock.errors import PenstockError, SettingError
from penstock.graph.loading import load_job
from penstock.spark.settings import read_conf

if TYPE_CHECKING:
    from penstock.engine.handle import Handle
    from penstock.engine.report import Report

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
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget where the last run ended.")] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print the report.")] = Output.TEXT,
) -> None:
    """Run a job until Ctrl-C, for a time, or until it is drained.

    Ctrl-C stops after the batch that runs; a second one stops at once. SIGHUP, where it does not come
    from a terminal that closes, reads FILE again and changes the job in place. Exit codes: 0 the run
    ended as asked, 1 the job failed or is wrong, 2 wrong usage, 130 stopped at once.
    """
    if for_ is not None and until is not None:
        raise typer.BadParameter("--for and --until exclude each other")
    if until not in (None, "drained"):
        raise typer.BadParameter(f"--until takes 'drained', not {until!r}")
    limit = _usage(read_duration, for_) if for_ is not None else until
    settings = _usage(read_conf, conf or [])
    job = load_job(target)
    job.validate()

    from penstock.spark.run import start

    stop = _StopOnSignal()
    reload = _ReloadOnSignal(target)
    with Progress(job.name) as progress:

        def show(report: Report) -> None:
            progress.show(report)
            reload.perhaps(handle, progress)

        try:
            with start(job, master=master, conf=settings, fresh=fresh, on_progress=show) as handle:
                handle.follow(limit, stop=stop)
            report = handle.report
        except PenstockError as error:
            raise PenstockError(told(job.name, error)) from error
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


class _StopOnSignal:
    """Asks a run to stop at the first signal and leaves at the second."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGINT, self._handle)
        signal.signal(signal.SIGTERM, self._handle)

    def __call__(self) -> bool:
        return self.asked

    def _handle(self, number: int, frame: FrameType | None) -> Any:  # noqa: ARG002
        if self.asked:
            # Java ends when this process does: its standard input closes.
            os._exit(INTERRUPTED)
        self.asked = True


class _ReloadOnSignal:
    """Reads a job's file again at a signal, and changes the running job."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._asked = False
        # A terminal that closes says the same, and then the job shall end with it.
        if not sys.stderr.isatty() and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            signal.signal(signal.SIGHUP, self._handle)

    def perhaps(self, handle: Handle, progress: Progress) -> None:
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
