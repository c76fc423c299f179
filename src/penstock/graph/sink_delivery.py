"""The delivery guarantee of each sink of a job with replicas."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from penstock.errors import DeliveryWarning
from penstock.graph.connector_api import Sink
from penstock.job_settings import Replicas

if TYPE_CHECKING:
    from penstock.graph.job import Job

FIRST_WRITER_WINS = "first-writer-wins"
"""Each record once: the output of one replica is committed for each batch, and any replica can publish it."""

BY_THE_WINNER = "by-the-winner"
"""The replica whose output was committed delivers each batch. If it dies before it confirms the delivery,
another replica repeats it with the same number and records. A receiver that recognises the number can ignore
the repetition.
"""

EVERY_REPLICA = "every-replica"
"""Every replica delivers a copy, with record ids by which a reader drops duplicates."""

BY_THE_PRIMARY = "by-the-primary"
"""Only the primary delivers. Records that it has not delivered when it dies are lost."""

_SAID = {
    FIRST_WRITER_WINS: "each record once",
    BY_THE_WINNER: "each batch once, and again if its replica dies before it confirms",
    EVERY_REPLICA: "each record once from every replica, with an id",
    BY_THE_PRIMARY: "each record at most once",
}


def replicas_of(job: Job) -> Replicas:
    """Return how a job is replicated, as far as it makes sense: validation reports the rest."""
    given: Any = job.replicas
    return given.sound if isinstance(given, Replicas) else Replicas()


def deliveries(job: Job) -> dict[str, str]:
    """Return the delivery guarantee of each sink by name."""
    return {
        vertex.label: _delivery(vertex.operator, held=replicas_of(job).publishes_by_primary)
        for vertex in job.vertices
        if vertex.kind == "sink" and isinstance(vertex.operator, Sink)
    }


def _delivery(sink: Sink, *, held: bool) -> str:
    if sink.transactional:
        return FIRST_WRITER_WINS if sink.shared else BY_THE_WINNER
    return BY_THE_PRIMARY if held else EVERY_REPLICA


def delivery_text(delivery: str) -> str:
    """Return the description of a delivery guarantee.

    >>> delivery_text(FIRST_WRITER_WINS)
    'each record once (first-writer-wins)'
    """
    return f"{_SAID[delivery]} ({delivery})"


def warn_if_not_exactly_once(job: Job, stacklevel: int) -> None:
    """Warn of the sinks of a job with replicas that do not get each record exactly once."""
    if not job.k:
        return
    for name, delivery in deliveries(job).items():
        if delivery == EVERY_REPLICA:
            gives = (
                f"each of the {job.k + 1} replicas delivers every record, with an id. Read the output"
                " with penstock.deduplicated"
            )
        elif delivery == BY_THE_PRIMARY:
            gives = "records that the primary has not delivered when it dies are lost. Use publisher='first'"
        else:
            continue
        warnings.warn(
            f"job {job.name!r}, sink {name!r}: {gives}, or use a sink that takes each record once, such as"
            " LogSink, FileSink or DatabaseSink",
            DeliveryWarning,
            stacklevel=stacklevel + 1,
        )
