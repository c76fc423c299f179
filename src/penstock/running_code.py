"""Whose code a thread calls, where that is not plain from the step of a batch that it runs."""

from __future__ import annotations

from contextvars import ContextVar, Token

_running: ContextVar[str | None] = ContextVar("running", default=None)


class vertex_call:  # noqa: N801 - used as a function; made by contextlib it would take three times as long
    """Say that the code of a vertex is called in this thread; an empty name is user code of no vertex.

    >>> with code_of("split"):
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
