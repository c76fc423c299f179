"""The exceptions of Penstock, and functions that format values, causes and choices for messages.

Each message says what is wrong, where, and what to do.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_LONGEST_SHOWN = 60
_PLAIN = (str, bytes, int, float, complex, bool, type(None), list, tuple, dict)


def shown(value: Any) -> str:
    """Return a short text for a value. Never raises; the text never contains a memory address.

    >>> shown("a b"), shown(-1), shown(object())
    ("'a b'", '-1', '<object>')
    """
    kind = f"<{type(value).__name__}>"
    if isinstance(value, type):
        return f"<class {value.__name__}>"
    if not isinstance(value, _PLAIN):
        return kind
    try:
        text = repr(value)
    except Exception:  # its __repr__ raises: show the type
        return kind
    if " at 0x" in text:
        return kind
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def label(name: Any) -> str:
    """Return a name as it is, or a short text for a value that is not a string.

    >>> label("split"), label(None)
    ('split', 'None')
    """
    return str.__str__(name) if isinstance(name, str) else shown(name)


def choices(names: tuple[str, ...]) -> str:
    """Return the permitted names as text for a message.

    >>> choices(("left", "right")), choices(())
    ("'left', 'right'", 'none')
    """
    return ", ".join(repr(name) for name in names) or "none"


_LONGEST = 500


class PenstockError(Exception):
    """The base class of all Penstock errors."""


@dataclass(frozen=True)
class Problem:
    """One problem of a graph."""

    code: str
    message: str
    vertex: str | None = None
    port: str | None = None

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"


class GraphError(PenstockError):
    """A job's graph is not valid; ``problems`` lists all problems."""

    def __init__(self, job: str, problems: Sequence[Problem]) -> None:
        self.job = job
        self.problems = list(problems)
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        count = len(self.problems)
        super().__init__(f"job {job!r} has {count} problem{'s' if count != 1 else ''}:{lines}")

    def __reduce__(self) -> tuple[object, ...]:
        return (GraphError, (self.job, self.problems))


class CycleLimitError(PenstockError):
    """A graph has too many elementary cycles to list."""


class TaskError(PenstockError):
    """User code raised. The batch was not committed; start the job again to resume from it."""

    def __init__(self, job: str, vertex: str, record: str, cause: str, trace: str = "") -> None:
        self.job = job
        self.vertex = vertex
        self.record = record
        self.cause = cause
        self.trace = trace
        super().__init__(f"job {job!r}, vertex {vertex!r}: {cause}\n  while it processed {record}")

    def __reduce__(self) -> tuple[object, ...]:
        return (TaskError, (self.job, self.vertex, self.record, self.cause, self.trace))


class ConnectorError(PenstockError):
    """A source or a sink raised. The batch was not committed; start the job again to resume from it."""

    def __init__(self, job: str, vertex: str, cause: str, trace: str = "") -> None:
        self.job = job
        self.vertex = vertex
        self.cause = cause
        self.trace = trace
        super().__init__(f"job {job!r}, vertex {vertex!r}: {cause}")

    @classmethod
    def of(cls, job: str, vertex: str, error: BaseException) -> ConnectorError:
        """Return the error of a connector with the names of its job and vertex."""
        return cls(job, vertex, cause_of(error), trace_of(error))

    def __reduce__(self) -> tuple[object, ...]:
        return (ConnectorError, (self.job, self.vertex, self.cause, self.trace))


class JobFailedError(PenstockError):
    """A job failed for a reason other than user code; ``trace`` is Spark's own trace."""

    def __init__(self, message: str, trace: str = "") -> None:
        self.trace = trace
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return (JobFailedError, (str(self), self.trace), self.__dict__)


class IncompleteBatchError(PenstockError):
    """The result of a batch is incomplete, so nothing of the batch was committed."""

    def __init__(self, job: str, batch: int, reason: str) -> None:
        self.job, self.batch, self.reason = job, batch, reason
        super().__init__(f"job {job!r}: the result of batch {batch} is incomplete: {reason}")

    def __reduce__(self) -> tuple[object, ...]:
        return (IncompleteBatchError, (self.job, self.batch, self.reason))


class InterruptedBatchError(IncompleteBatchError):
    """Spark could not reach its own processes during a batch: a transient failure of a busy machine."""

    def __init__(self, job: str, batch: int, reason: str) -> None:
        super().__init__(job, batch, reason)
        self.args = (f"job {job!r}: batch {batch} was interrupted: {reason}",)

    def __reduce__(self) -> tuple[object, ...]:
        return (InterruptedBatchError, (self.job, self.batch, self.reason))


class QueryInterruptedError(JobFailedError):
    """A transient failure ended the query of a job; it can be started again."""

    def __reduce__(self) -> tuple[object, ...]:
        return (QueryInterruptedError, (str(self), self.trace), self.__dict__)


class IncompatibleJobError(PenstockError):
    """A job cannot continue from its checkpoint; the message says what to do."""


class SupersededError(PenstockError):
    """Another worker has taken over the job; this one must stop."""


class ReplicaOutdatedError(PenstockError):
    """The other replicas no longer keep the batch that this replica needs next; it must copy their state."""


class ReplicaDivergedError(PenstockError):
    """A replica's result of a batch differs from the committed one; it must restart from a snapshot.

    ``batch`` and ``vertex`` say where. ``alarming`` is false where a difference is expected, such as after an
    update that replicas applied at different batches.
    """

    def __init__(
        self, job: str, batch: int, vertex: str, by: str, reason: str, alarming: bool = True
    ) -> None:
        self.job, self.batch, self.vertex, self.by = job, batch, vertex, by
        self.reason, self.alarming = reason, alarming
        super().__init__(f"job {job!r}, vertex {vertex!r}, batch {batch}: {reason}")

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.job, self.batch, self.vertex, self.by, self.reason, self.alarming)
        return (ReplicaDivergedError, fields, self.__dict__)


class DeliveryWarning(UserWarning):
    """A job with replicas has a sink that does not get each record exactly once."""


class SettingError(PenstockError):
    """An option or a setting is invalid, or the machine lacks something that Penstock needs."""


class MissingParameterError(SettingError, KeyError):
    """A job reads a parameter that was not given; ``name`` says which."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)

    def __str__(self) -> str:
        return (
            f"parameter {self.name!r} is not given: give it with --param {self.name}=VALUE,"
            f" or make it optional with ps.params.get({self.name!r}, DEFAULT)"
        )


class FolderError(PenstockError):
    """A folder that a source reads or a sink writes was changed; the message says how to continue."""


class LogError(PenstockError):
    """An operation on a log failed."""


class ShortReadError(PenstockError):
    """A source did not return the planned number of records. The batch was not committed."""


class LogNotFoundError(LogError):
    """No log has that name."""


class LogExistsError(LogError):
    """A log of that name exists already."""


class LogCorruptionError(LogError):
    """A segment is damaged. None of its content is returned as data."""

    def __init__(self, log: str, partition: int, position: int, path: str, cause: str) -> None:
        self.log = log
        self.partition = partition
        self.position = position
        self.path = path
        self.cause = cause
        super().__init__(
            f"log {log!r}, partition {partition}, position {position}: segment {path} is damaged: {cause}"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (
            LogCorruptionError,
            (self.log, self.partition, self.position, self.path, self.cause),
            self.__dict__,
        )


class UnstorableValueError(LogError):
    """A value cannot be stored in a log: it is not plain data, or contains something that is not."""


def cause_of(error: BaseException) -> str:
    """Return the type and the message of an error, even if its ``__str__`` raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__} (whose message cannot be shown)"


def trace_of(error: BaseException) -> str:
    """Return the traceback of an error as text, even if its ``__str__`` raises."""
    try:
        return "".join(traceback.format_exception(error))
    except Exception:
        return "".join(traceback.format_tb(error.__traceback__))


def shorten(value: Any) -> str:
    """Return a representation short enough for an error message, even if ``__repr__`` raises."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
