"""What a job with replicas gives at each of its sinks."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from penstock.errors import DeliveryWarning
from penstock.graph.connector_api import Sink

if TYPE_CHECKING:
    from penstock.graph.job import Job

FIRST_WRITER_WINS = "first-writer-wins"
"""One replica's output of each batch counts, and any of them can bring it out: each record is there once."""

BY_THE_WINNER = "by-the-winner"
"""The replica whose output counts hands each batch over. When it dies before it has said so, another does it
again, with the same number and the same records: once, if the receiver knows a batch again."""

EVERY_REPLICA = "every-replica"
"""Every replica delivers a copy of its own, with ids by which a reader drops the others."""

BY_THE_PRIMARY = "by-the-primary"
"""Only the primary delivers. What it has not delivered when it dies is missing."""

_SAID = {
    FIRST_WRITER_WINS: "each record once",
    BY_THE_WINNER: "each batch once, and again when its replica dies before it has said so",
    EVERY_REPLICA: "each record once for every replica, with an id",
    BY_THE_PRIMARY: "each record at most once",
}


def deliveries(job: Job) -> dict[str, str]:
    """Return by the name of each sink which of the four it is."""
    return {
        vertex.label: _delivery(vertex.operator, held=job.replication == "standby")
        for vertex in job.vertices
        if vertex.kind == "sink" and isinstance(vertex.operator, Sink)
    }


def _delivery(sink: Sink, *, held: bool) -> str:
    if sink.transactional:
        return FIRST_WRITER_WINS if sink.shared else BY_THE_WINNER
    return BY_THE_PRIMARY if held else EVERY_REPLICA


def delivery_text(delivery: str) -> str:
    """Return what a delivery means, in a few words.

    >>> delivery_text(FIRST_WRITER_WINS)
    'each record once (first-writer-wins)'
    """
    return f"{_SAID[delivery]} ({delivery})"


def warn_if_not_exactly_once(job: Job, stacklevel: int) -> None:
    """Warn of the sinks of a job with replicas at which each record need not be there once."""
    if not job.k:
        return
    for name, delivery in deliveries(job).items():
        if delivery == EVERY_REPLICA:
            gives = (
                f"each of the {job.k + 1} replicas delivers every record, with an id. Read what they deliver"
                " with penstock.deduplicated"
            )
        elif delivery == BY_THE_PRIMARY:
            gives = "what the primary has not delivered when it dies is missing. Use replication='active'"
        else:
            continue
        warnings.warn(
            f"job {job.name!r}, sink {name!r}: {gives}, or use a sink that takes each record once, such as"
            " LogSink, FileSink or DatabaseSink",
            DeliveryWarning,
            stacklevel=stacklevel + 1,
        )
