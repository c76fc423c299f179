"""User code that raised, on its way from a worker to the user."""

from __future__ import annotations

from penstock.errors import TaskError, cause_of, shorten, trace_of
from penstock.record import Record


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
