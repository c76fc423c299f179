"""User code that raised: trying again, going on without the record, or telling the user."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from penstock.errors import TaskError, cause_of, shorten, trace_of
from penstock.graph.on_error import ErrorPolicy
from penstock.record import Record

ErrorHandler = Callable[[Record, BaseException, "Callable[[], Any] | None"], Any]
"""Takes a record, what was raised for it and how to try again. Returns what trying again has given, or
None when the job goes on without the record; raises VertexFailureError when it cannot go on."""


class VertexFailureError(Exception):
    """Raised inside a worker where a vertex failed; the cause is chained."""

    def __init__(self, vertex: int, record: Record | None, cause: BaseException) -> None:
        super().__init__(f"vertex {vertex}")
        self.vertex = vertex
        self.record = record
        self.cause = cause

    def explain(self, job: str, vertex: str) -> TaskError:
        """Return the error that the user sees: plain text, so that it travels anywhere."""
        record = "its input" if self.record is None else shorten(self.record)
        return TaskError(job, vertex, record, cause_of(self.cause), trace_of(self.cause))


def message_of(error: BaseException) -> str:
    """Return what an error says, whatever its ``__str__`` does."""
    try:
        return str(error)
    except Exception:
        return "(its message cannot be shown)"


def retry(policy: ErrorPolicy, error: BaseException, again: Callable[[], Any] | None) -> Any:
    """Call again as often as a policy says; raises the last error when none has helped."""
    delay = policy.delay
    if again is not None and isinstance(error, Exception):
        for _ in range(policy.retries):
            time.sleep(delay)
            delay *= 2
            try:
                return again()
            except Exception as latest:
                error = latest
    raise error


def raise_failure(vertex: int) -> ErrorHandler:
    """Return what a vertex does that neither tries again nor goes on."""

    def recover(record: Record, error: BaseException, again: Any) -> Any:  # noqa: ARG001
        raise VertexFailureError(vertex, record, error) from error

    return recover
