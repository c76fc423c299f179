"""What the command line does with errors: one clear sentence and an exit code, never a traceback."""

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

from penstock.cli.exit_codes import FAILED, INTERRUPTED, exit_code_of
from penstock.errors import DeliveryWarning, PenstockError

P = ParamSpec("P")


def user_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Turn what a user can do wrong into one line and an exit code; a closed pipe is no error."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with _warnings_told():
                command(*args, **kwargs)
        except PenstockError as error:
            fail(str(error), exit_code_of(error))
        except BrokenPipeError:
            # Python flushes standard output once more when it exits, and would complain then.
            with suppress(UnsupportedOperation):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except OSError as error:
            fail(f"{error.strerror}: {error.filename}" if error.filename else str(error))

    return run


@contextmanager
def _warnings_told() -> Iterator[None]:
    """Say what Penstock warns of in one line, once; how others warn stays as it is."""
    said: set[str] = set()
    others = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not issubclass(category, DeliveryWarning):
            others(message, category, filename, lineno, file, line)
        elif str(message) not in said:
            said.add(str(message))
            typer.echo(f"warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def fail(message: str, code: int = FAILED) -> NoReturn:
    """End with an error."""
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(code)
