"""Side streams: late, discarded and failed records, each with the reason.

Every job has the streams ``discarded`` (loops), ``late`` (windows) and ``errors`` (user code and schemas).
An entry is a dict in the stream's log, and an instance of one of these classes in reports and tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Number
from typing import Any

from penstock.errors import shorten
from penstock.graph.vertex import DISCARDED, ERRORS, LATE
from penstock.record import Record

SIDES = {DISCARDED: f"@{DISCARDED}", LATE: f"@{LATE}", ERRORS: f"@{ERRORS}"}
"""The sink name of each side stream."""


@dataclass(frozen=True)
class SideEntry:
    """An entry of a side stream: the record, and the vertex that did not process it."""

    job: str
    vertex: str
    record: Record

    @property
    def key(self) -> Any:
        """The key of the record."""
        return self.record.key

    @property
    def value(self) -> Any:
        """The value of the record."""
        return self.record.value

    @property
    def ts(self) -> float | None:
        """The time of the record."""
        return self.record.ts

    def _reasons(self) -> dict[str, Any]:
        return {name: field for name, field in self.__dict__.items() if name != "record"}

    def _with_time(self, reasons: dict[str, Any], shown: str) -> dict[str, Any]:
        """Add a time that a log cannot store to the fields of an entry."""
        return {**reasons, "ts": shown}

    def to_record(self) -> Record:
        """Return the entry as a record of its stream. A time that is not a number is added as text."""
        given, reasons = self.record.ts, self._reasons()
        ts = seconds_of(given)
        if ts is None and given is not None:
            reasons = self._with_time(reasons, shorten(given))
        return Record(self.record.key, {**reasons, "value": self.record.value}, ts)

    @classmethod
    def from_record(cls, entry: Record) -> Any:
        """Create an entry from a record of its stream."""
        fields = dict(entry.value)
        fields.pop("ts", None)
        record = Record(entry.key, fields.pop("value"), entry.ts)
        return cls(**fields, record=record)


@dataclass(frozen=True)
class Discarded(SideEntry):
    """A record that reached the limit of a loop. ``vertex`` is the loop's entry."""

    cycle: tuple[str, ...]
    count: int
    """How many times the record would have returned: more than ``limit``."""
    limit: int

    def _reasons(self) -> dict[str, Any]:
        return {**super()._reasons(), "cycle": list(self.cycle)}

    @classmethod
    def from_record(cls, entry: Record) -> Discarded:
        """Create an entry from a record of the ``discarded`` stream."""
        fields = {**entry.value, "cycle": tuple(entry.value["cycle"])}
        found: Discarded = super().from_record(entry._replace(value=fields))
        return found


@dataclass(frozen=True)
class Late(SideEntry):
    """A record that arrived after all its windows were closed."""

    watermark: float
    """The watermark at that time: windows that end at or before it were closed."""


@dataclass(frozen=True)
class Failed(SideEntry):
    """A record that user code raised for, or that does not fit a schema."""

    error: str
    """The type of the exception."""
    message: str
    """The message of the exception."""

    def _with_time(self, reasons: dict[str, Any], shown: str) -> dict[str, Any]:
        if shown in self.message:
            return reasons
        return {**reasons, "message": f"{self.message} (the record's time is {shown})"}


def seconds_of(ts: Any) -> float | None:
    """Return a time in the form that a log stores; None if it is not a number.

    >>> seconds_of(5), seconds_of("5"), seconds_of(10**400)
    (5, None, None)
    """
    if ts is None or type(ts) is float:
        return ts
    is_number = isinstance(ts, Number)  # float() would also accept text, and arrays of one element.
    try:
        seconds = float(ts) if is_number else None
    except (TypeError, ValueError, OverflowError):
        return None
    return ts if type(ts) is int else seconds
