"""Calls into the code of a vertex: tracks which vertex a thread runs and adds its name to errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token

from penstock.errors import ConnectorError, PenstockError, TaskError

_running: ContextVar[str | None] = ContextVar("running", default=None)


class vertex_call:  # noqa: N801 - used as a function; made by contextlib it would take three times as long
    """Mark this thread as running the code of a vertex; an empty name means user code outside of any vertex.

    >>> with vertex_call("split"):
    ...     running_vertex()
    'split'
    """

    __slots__ = ("_token", "_vertex")

    def __init__(self, vertex: str) -> None:
        self._vertex = vertex
        self._token: Token[str | None]

    def __enter__(self) -> None:
        self._token = _running.set(self._vertex)

    def __exit__(self, *_: object) -> None:
        _running.reset(self._token)


def running_vertex() -> str | None:
    """Return the vertex whose code this thread runs; None outside of a ``vertex_call``."""
    return _running.get()


def note_vertex(error: PenstockError, job: str, vertex: str) -> None:
    """Add the names of job and vertex to an error that does not contain them.

    >>> from penstock.errors import LogError
    >>> error = LogError("log 'in' is full")
    >>> note_vertex(error, "wordcount", "lines")
    >>> error.__notes__
    ["in job 'wordcount', vertex 'lines'"]
    """
    if not isinstance(error, TaskError | ConnectorError) and not hasattr(error, "__notes__"):
        error.add_note(f"in job {job!r}, vertex {vertex!r}")


def connector_error(error: Exception, job: str, vertex: str) -> PenstockError:
    """Return an exception of a connector as an error that names job and vertex."""
    if not isinstance(error, PenstockError):
        return ConnectorError.of(job, vertex, error)
    note_vertex(error, job, vertex)
    return error


@contextmanager
def connector_call(job: str, vertex: str, *, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Add the names of job and vertex to errors of a connector; those in ``passing`` are raised unchanged.

    >>> with connector_call("wordcount", "lines"):
    ...     raise OSError("no such device")
    Traceback (most recent call last):
    penstock.errors.ConnectorError: job 'wordcount', vertex 'lines': OSError: no such device
    """
    try:
        with vertex_call(vertex):
            yield
    except passing:
        raise
    except Exception as error:
        named = connector_error(error, job, vertex)
        if named is error:
            raise
        raise named from error
