"""Calls into the code of a vertex.

Which vertex the current thread runs, and errors that name its job and vertex.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token

from penstock.errors import ConnectorError, PenstockError, TaskError

_running: ContextVar[str | None] = ContextVar("running", default=None)


class vertex_call:  # noqa: N801 - used as a function; made by contextlib it would take three times as long
    """Say that the code of a vertex is called in this thread; an empty name is user code of no vertex.

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
    """Return the vertex whose code this thread calls; None if nobody has said."""
    return _running.get()


def note_vertex(error: PenstockError, job: str, vertex: str) -> None:
    """Note in which job and vertex an error happened that cannot know it.

    >>> from penstock.errors import LogError
    >>> error = LogError("log 'in' is full")
    >>> note_vertex(error, "wordcount", "lines")
    >>> error.__notes__
    ["in job 'wordcount', vertex 'lines'"]
    """
    if not isinstance(error, TaskError | ConnectorError) and not hasattr(error, "__notes__"):
        error.add_note(f"in job {job!r}, vertex {vertex!r}")


def connector_error(error: Exception, job: str, vertex: str) -> PenstockError:
    """Return what a user is told when the connector of a vertex raises: it names job and vertex."""
    if not isinstance(error, PenstockError):
        return ConnectorError.of(job, vertex, error)
    note_vertex(error, job, vertex)
    return error


@contextmanager
def connector_call(job: str, vertex: str, *, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Give what the connector of a vertex raises the names of job and vertex; some errors pass as they are.

    What it prints meanwhile is output of the vertex.

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
