"""Takes the result of a batch from Spark, and asks Java whether that was all of it.

PySpark's own ``collect`` takes a stream that breaks off, even within a row, for one that has ended: when Java
dies, or when an exception ends the thread that sends the rows. So Java is asked how the sending ended, and
where the plan does not say how many rows there are, Spark counts them while it computes them.
"""

from __future__ import annotations

import struct
from typing import Any

from penstock.engine.stages import Row
from penstock.errors import IncompleteBatchError, cause_of
from penstock.spark.java_loss import is_java_lost
from penstock.spark.transient_failures import transient_reason


def collect_rows(frame: Any, job: str, batch: int, *, counted: bool = False) -> list[Row]:
    """Return all rows of a frame; raises IncompleteBatchError when some did not arrive.

    ``counted`` has Spark count the rows apart from the stream in which they come.
    """
    from pyspark.serializers import BatchedSerializer, CPickleSerializer
    from pyspark.sql import Observation, functions
    from pyspark.util import _load_from_socket

    serializer = BatchedSerializer(CPickleSerializer())  # type: ignore[no-untyped-call]
    expected = Observation() if counted else None
    if expected is not None:
        frame = frame.observe(expected, functions.count(functions.lit(1)).alias("rows"))
    served = frame._jdf.collectToPython()
    try:
        with _load_from_socket(served, serializer) as stream:
            rows = [(bucket, kind, data) for bucket, kind, data in stream]
    except (struct.error, EOFError, OSError) as cut:
        raise IncompleteBatchError(job, batch, f"the result broke off: {cause_of(cut)}") from cut
    _check_sent(served[2], job, batch)
    if expected is not None and expected.get["rows"] != len(rows):
        reason = f"{len(rows)} of {expected.get['rows']} rows of the result have arrived"
        raise IncompleteBatchError(job, batch, reason)
    return rows


def _check_sent(server: Any, job: str, batch: int) -> None:
    """Ask Java how the thread has ended that has sent the rows."""
    try:
        server.getResult()
    except Exception as error:
        if is_java_lost(error) or transient_reason(error) is not None:
            raise
        raise IncompleteBatchError(
            job, batch, f"Java could not send the result: {cause_of(error)}"
        ) from error
