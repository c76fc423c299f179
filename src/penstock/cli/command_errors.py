"""Exit codes, and the decorator that turns an error of a command into one line and an exit code."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import UnsupportedOperation
from typing import NoReturn, ParamSpec, TextIO

import typer

from penstock.errors import DeliveryWarning, PenstockError
from penstock.web.cluster_access import ClientError, NoClusterError, UnreachableError

OK = 0
FAILED = 1
"""The job failed or is not valid, or the cluster refused the request."""
USAGE = 2
"""The command line itself is wrong."""
UNREACHABLE = 3
"""No master answers, or no master is known."""
UNKNOWN = 4
"""There is no such job, node or alarm."""
INTERRUPTED = 130
"""Ctrl-C, except where it is the usual way to end a command."""

EPILOG = (
    "Exit codes: 0 done, 1 failed or refused, 2 wrong usage, 3 no master can be reached, "
    "4 no such job, node or alarm."
)


def exit_code_of(error: PenstockError) -> int:
    """Return the exit code for an error.

    >>> exit_code_of(UnreachableError("no master")), exit_code_of(ClientError("no job 'a'", "unknown", 404))
    (3, 4)
    """
    if isinstance(error, UnreachableError | NoClusterError):
        return UNREACHABLE
    if isinstance(error, ClientError) and error.code == "unknown":
        return UNKNOWN
    return FAILED


P = ParamSpec("P")


def user_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Report an error of the user in one line with an exit code; a closed pipe is not an error."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with _short_warnings():
                command(*args, **kwargs)
        except PenstockError as error:
            fail(str(error), exit_code_of(error))
        except BrokenPipeError:
            # Python flushes standard output at exit, and would print an error if it were still the pipe.
            with suppress(UnsupportedOperation):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except OSError as error:
            fail(f"{error.strerror}: {error.filename}" if error.filename else str(error))

    return run


@contextmanager
def _short_warnings() -> Iterator[None]:
    """Print warnings of Penstock in one line, once each; leave other warnings as they are."""
    printed: set[str] = set()
    show_other = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not issubclass(category, DeliveryWarning):
            show_other(message, category, filename, lineno, file, line)
        elif str(message) not in printed:
            printed.add(str(message))
            typer.echo(f"warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Print an error and exit."""
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(code)
