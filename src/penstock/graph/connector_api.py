"""The protocols of connectors: sources and sinks.

A connector is plain Python and does not depend on Spark. A source defines positions and can read the same
range twice; a sink writes on the workers, and its output becomes visible only when the driver commits it. The
exactly-once guarantee follows from these two properties.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.record import Record
from penstock.replicas.record_ids import RecordIds

if TYPE_CHECKING:
    from penstock.columns import Columns

Position = dict[str, int]
"""How far a source has been read, by partition. It is stored as JSON."""

Split = Any
"""A part of a range that one Spark task reads; any picklable value defined by the source."""

Receipt = Any
"""The result of a writer for its sink's ``commit``; JSON data if the sink is transactional."""

Reject = Callable[[Record, str], None]
"""Handles a record that a sink cannot store, with the reason."""


@dataclass(frozen=True)
class Rejected:
    """Input that a source could not convert to records: each piece unchanged, with the reason.

    A source yields it between its lists of records. With ``on_error="fail"`` it ends the job; otherwise the
    pieces go into the job's ``errors`` stream, and the job continues.
    """

    pieces: Sequence[tuple[Any, str]]


class Source(ABC):
    """A replayable stream of records.

    ``begin``, ``latest``, ``splits``, ``lag`` and ``committed`` are called on the driver, ``read`` on
    the workers.
    """

    bounded: bool = False
    """Whether the stream ends: it has no more records than at the start of the job. At the end of all its
    sources a job closes the windows that are still open."""

    durable: bool = True
    """Whether records can be read again after the program has ended."""

    replicable: bool = True
    """Whether every process on every machine gets the same records and lanes for the same positions at any
    time. A job with replicas requires this of all its sources."""

    not_replicable: str = ""
    """Why the source is not ``replicable``, and what to do about it."""

    @abstractmethod
    def begin(self) -> Position:
        """Return the position of the first record."""

    @abstractmethod
    def latest(self, after: Position) -> Position:
        """Return the position up to which the next batch reads, at least ``after``."""

    @abstractmethod
    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Divide the range into parts that can be read in parallel."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[list[Record] | Columns | Rejected]:
        """Read one part, in order, as lists of a few thousand records, or as typed columns."""

    def records_in(self, split: Split) -> int | None:  # noqa: ARG002
        """Return the number of records in a part, including rejected ones, or None if it is not known.

        If it is known, a part with another number of records ends the job, because a stale view of a file
        must not be mistaken for the complete file.
        """
        return None

    def lane(self, split: Split) -> str:  # noqa: ARG002
        """Return the name of the ordered stream that a part belongs to, such as a partition.

        Records of one lane are in order from part to part, and a batch has at most one part of a lane. The
        order within a lane determines windows and late records.
        """
        return ""

    def lanes(self, end: Position) -> Sequence[str]:  # noqa: ARG002
        """Return the lanes that have records before a position.

        No window closes before each of these lanes has sent a record.
        """
        return ()

    def unread(self, end: Position) -> Sequence[str]:  # noqa: ARG002
        """Return the lanes that are known to have records after a position.

        Such a lane is not idle, however long it has sent nothing, because it waits to be read. The result
        must follow from the position, so that it is the same for a batch that is planned again.
        """
        return ()

    def committed(self, position: Position, reader: str) -> None:  # noqa: B027
        """Handle the notice that a reader will never again read before a position."""

    def on_worker(self) -> Source:
        """Return a copy of this source with what a worker needs for reading."""
        return self

    def lag(self, after: Position) -> int | None:  # noqa: ARG002
        """Return the number of records after a position, or None if it is not known."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return what this source reads, as JSON data that is the same in every run.

        A job continues from a position only if the description of its source is unchanged.
        """
        return {}


@dataclass(frozen=True)
class WriteContext:
    """The context of a sink's writer: the Spark task for which it writes."""

    job: str
    vertex: str
    batch: int
    task: str
    """An id that is unique to each attempt of a Spark task, so that no two attempts write the same file."""
    reject: Reject | None = None
    """Handles a record that the sink cannot store, with the reason; raises if such a record ends the job."""
    ids: RecordIds | None = None
    """Gives each record an id that is the same in every replica of the job; None for a job without replicas.
    A writer takes as many ids as it is given records, in their order."""


class SinkWriter(ABC):
    """Writes the records of one Spark task for a sink."""

    @abstractmethod
    def write(self, records: list[Record]) -> None:
        """Write records. Nothing may be visible before the sink's commit."""

    @abstractmethod
    def finish(self) -> Receipt | None:
        """Complete the output and return a receipt for the commit; None if there is no output."""


class Sink(ABC):
    """A destination of a job's results."""

    transactional: bool = False
    """Whether ``commit`` can be repeated for the same batch without duplicating output. Receipts of such a
    sink are stored with the batch, and an interrupted commit is completed later."""

    shared: bool = False
    """Whether several processes, on several machines, may concurrently call ``commit`` for the same batch,
    also with receipts of another process, without duplicating output. Any replica can then complete the
    commit of another one; for other sinks only one replica commits each batch."""

    synced: bool = False
    """Set by a job with ``durability="batch"``: the output of a writer, and that made visible by ``commit``,
    must be synced to the disk when ``finish`` and ``commit`` return."""

    holdable: bool = False
    """Whether a transactional sink can store exactly the values that a log can store: then a backup replica
    can hold records for it in files, and pass them on later without checks."""

    @abstractmethod
    def writer(self, context: WriteContext) -> SinkWriter:
        """Open a writer on a worker, for one Spark task."""

    @abstractmethod
    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        """Make the output of a batch visible, on the driver."""

    def discard(self, receipts: Sequence[Receipt]) -> None:  # noqa: B027
        """Remove staged output that will never be committed, on the driver.

        Output that no longer exists is not an error. Crashes can leave output that is never discarded.
        """

    def prepare(self) -> None:  # noqa: B027
        """Prepare the sink for writing, on the driver, before the first batch."""

    def tidy(self, job: str) -> None:  # noqa: B027
        """Remove old leftovers of crashes of a job, on the driver, after batches.

        It is called when the output of the job in all its sinks is published, so that all earlier staged
        output is obsolete, even that of another of its sinks.
        """

    def describe(self) -> dict[str, Any]:
        """Return the options of this sink, as JSON data that is the same in every run."""
        return {}
