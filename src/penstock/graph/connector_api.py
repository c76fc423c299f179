"""The protocols of connectors: sources and sinks.

A connector is plain Python and knows nothing of Spark. A source names positions and can read the same
range twice; a sink writes on the workers what becomes visible only when the driver commits it. Exactly
once follows from these two properties and from nothing else.
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
"""A part of a range that one Spark task reads; any picklable value of the source's own."""

Receipt = Any
"""What a writer hands to its sink's commit; plain JSON data where the sink is transactional."""

Reject = Callable[[Record, str], None]
"""Takes a record that a sink cannot store, with the reason."""


@dataclass(frozen=True)
class Rejected:
    """What a source could not read as records: each piece as it was found, with the reason.

    A source gives it between its lists of records. With ``on_error="fail"`` it ends the job; otherwise
    the pieces go into the job's ``errors`` stream, and the rest goes on.
    """

    pieces: Sequence[tuple[Any, str]]


class Source(ABC):
    """A replayable stream of records.

    ``begin``, ``latest``, ``splits``, ``lag`` and ``committed`` are called on the driver, ``read`` on
    the workers.
    """

    bounded: bool = False
    """Whether the stream ends: what is there when the job starts is all that will ever come. At the end
    of its sources a job closes the windows that are still open."""

    durable: bool = True
    """Whether what was read can be read again after the program has ended."""

    replicable: bool = True
    """Whether any process on any machine that asks for the same positions gets the same records and lanes,
    whenever it asks. A job with replicas needs that of all its sources."""

    not_replicable: str = ""
    """Where it is not so: why, and what to do about it."""

    @abstractmethod
    def begin(self) -> Position:
        """Return the position of the first record."""

    @abstractmethod
    def latest(self, after: Position) -> Position:
        """Return the position up to which the next batch reads, at least ``after``."""

    @abstractmethod
    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Divide the range into parts that can be read side by side."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[list[Record] | Columns | Rejected]:
        """Read one part, in order, as lists of a few thousand records, or as typed columns."""

    def records_in(self, split: Split) -> int | None:  # noqa: ARG002
        """Return how many records a part has, those that are rejected included, or None when nobody knows.

        Where it is known, a part that gives another number ends the job: a view of a file that is not up to
        date must not pass for all there is.
        """
        return None

    def lane(self, split: Split) -> str:  # noqa: ARG002
        """Return the name of the ordered stream that a part belongs to, such as a partition.

        Records of one lane come in order from part to part, and a batch has one part of a lane at the
        most. Windows are cut, and late records told, by the order within a lane.
        """
        return ""

    def lanes(self, end: Position) -> Sequence[str]:  # noqa: ARG002
        """Return the lanes that have any record before a position.

        No window is closed before each of them has sent one.
        """
        return ()

    def unread(self, end: Position) -> Sequence[str]:  # noqa: ARG002
        """Return the lanes of which a position says that there is something behind it.

        However long such a lane has sent nothing, it is not idle: it waits for its turn. The answer must
        follow from the position, so that it is the same for a batch that is planned again.
        """
        return ()

    def committed(self, position: Position, reader: str) -> None:  # noqa: B027
        """Take note that a reader will never again ask for what lies before a position."""

    def on_worker(self) -> Source:
        """Return what a worker needs of this source in order to read."""
        return self

    def lag(self, after: Position) -> int | None:  # noqa: ARG002
        """Return how many records wait behind a position, or None when that is not known."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return what this source reads, as plain JSON data, the same from run to run.

        A job goes on from a position only with a source that describes itself as the one before did.
        """
        return {}


@dataclass(frozen=True)
class WriteContext:
    """What a sink's writer may know about the Spark task it writes for."""

    job: str
    vertex: str
    batch: int
    task: str
    """Different for each attempt of each Spark task, so that no two attempts write the same file."""
    reject: Reject | None = None
    """Takes a record that the sink cannot store, with the reason; raises where such a record ends the job."""
    ids: RecordIds | None = None
    """Gives each record an id that it has in every replica of the job; None for a job without replicas. A
    writer asks for as many as it is handed records, in their order."""


class SinkWriter(ABC):
    """Takes the records that one Spark task has for a sink."""

    @abstractmethod
    def write(self, records: list[Record]) -> None:
        """Take records. Nothing may be visible to anybody before the sink's commit."""

    @abstractmethod
    def finish(self) -> Receipt | None:
        """Seal what was written and describe it for the commit; None when there is nothing."""


class Sink(ABC):
    """A place where a job's results go."""

    transactional: bool = False
    """True when ``commit`` can be repeated for the same batch without doubling it. Receipts of such a
    sink are stored with the batch, and a commit that a crash interrupted is completed later."""

    shared: bool = False
    """True when several processes, on several machines, may call ``commit`` for the same batch at the same
    time, with receipts of what yet another process has staged, without doubling it. Any replica of a job can
    then finish what another has begun; of other sinks each batch is left to one of them."""

    synced: bool = False
    """Set by a job with ``durability="batch"``: what a writer has finished, and what ``commit`` has made
    visible, must be on the disk when they return."""

    holdable: bool = False
    """True for a transactional sink that stores whatever a log can store, and refuses the rest as a log does:
    then a backup can keep records for it in files of its own, and hand them over unseen."""

    @abstractmethod
    def writer(self, context: WriteContext) -> SinkWriter:
        """Open a writer on a worker, for one Spark task."""

    @abstractmethod
    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        """Make a batch visible, on the driver."""

    def discard(self, receipts: Sequence[Receipt]) -> None:  # noqa: B027
        """Remove what was staged and will never be committed, on the driver.

        Whatever of it is gone already is no error. What nobody discards is the leftover of a crash.
        """

    def prepare(self) -> None:  # noqa: B027
        """Make the sink ready to be written to, on the driver, before the first batch."""

    def tidy(self, job: str) -> None:  # noqa: B027
        """Remove what crashes of a job have left here long ago, on the driver, after batches.

        It is called when all sinks of the job have got all that is theirs, so whatever the job has staged
        before is nobody's any more, even where another of its sinks has staged it.
        """

    def describe(self) -> dict[str, Any]:
        """Return the options of this sink, as plain JSON data, the same from run to run."""
        return {}
