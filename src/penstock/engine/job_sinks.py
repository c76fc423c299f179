"""The sinks of a job.

One writer per sink within a task, and publishing, discarding or tidying what writers have staged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from penstock.columns import Columns
from penstock.engine.blueprint import Blueprint
from penstock.engine.record_digest import add_digests, digest
from penstock.engine.side_streams import SIDES
from penstock.errors import TaskError, UnstorableValueError
from penstock.graph.connector_api import Receipt, Reject, SinkWriter, WriteContext
from penstock.graph.vertex import ERRORS
from penstock.record import Record
from penstock.replicas.record_ids import RecordIds
from penstock.vertex_calls import connector_call, connector_error, vertex_call


class SinkWriters:
    """The open writers of one Spark task."""

    def __init__(self, blueprint: Blueprint, batch: int, task: str) -> None:
        self._job = blueprint.job
        self._sinks = blueprint.sinks
        self._order = {name: (name.startswith("@"), place) for place, name in enumerate(self._sinks)}
        self._batch = batch
        self._task = task
        self._open: dict[str, SinkWriter] = {}
        self._compared = blueprint.replica_spec is not None
        self._origin = ""
        self._ids: dict[str, RecordIds] = {}
        self.digests: dict[str, int] = {}
        """By sink, of all that was handed to it; only where there are replicas to compare with."""

    def begin(self, origin: str) -> None:
        """Say where in the batch the records come from that follow, for their ids."""
        self._origin = origin
        for ids in self._ids.values():
            ids.begin(origin)

    def has(self, sink: str) -> bool:
        """Whether the job has a sink of that name; side streams are there only when they can be needed."""
        return sink in self._sinks

    def write(self, sink: str, records: list[Record] | Columns, reject: Reject | None) -> None:
        """Hand records to a sink; ``reject`` takes those that it cannot store."""
        writer = self._open.get(sink)
        if self._compared:
            add_digests(self.digests, {sink: _digest(sink, records)})
        try:
            if writer is None:
                if self._compared and self._origin and sink not in self._ids:
                    self._ids[sink] = RecordIds(self._batch, self._origin)
                ids = self._ids.get(sink)
                context = WriteContext(self._job, sink, self._batch, self._task, reject, ids)
                with vertex_call(sink):
                    writer = self._open[sink] = self._sinks[sink].writer(context)
            if isinstance(records, Columns):
                # Keys of several types are not a column.
                takes = getattr(writer, "takes_columns", False) and not isinstance(records.keys, list)
                given = cast("list[Record]", records) if takes else records.records()
            else:
                given = records
            with vertex_call(sink):
                writer.write(given)
        except Exception as error:
            raise self._failure(sink, error) from error

    def finish_next(self) -> tuple[str, Receipt | None] | None:
        """Seal one sink and return its name and receipt; None when none is open.

        Side streams come last: while a sink is sealed, it may still refuse records.
        """
        if not self._open:
            return None
        sink = min(self._open, key=self._order.__getitem__)
        try:
            with vertex_call(sink):
                return sink, self._open.pop(sink).finish()
        except Exception as error:
            raise self._failure(sink, error) from error

    def _failure(self, sink: str, error: Exception) -> Exception:
        """A value that has no form in a sink is the job's mistake; all else is the sink's own trouble."""
        if isinstance(error, UnstorableValueError):
            return TaskError(self._job, sink, "its input", f"{type(error).__name__}: {error}")
        return connector_error(error, self._job, sink)


def _digest(sink: str, records: list[Record] | Columns) -> int:
    its = records.records() if isinstance(records, Columns) else records
    if sink == SIDES[ERRORS]:
        # What an error says may contain the address of an object, which is another one in every process.
        its = [record._replace(value={**record.value, "message": ""}) for record in its]
    return digest(its)


def publish(blueprint: Blueprint, batch: int, receipts: Mapping[str, list[Any]]) -> None:
    """Make a batch visible in its sinks."""
    for name, sink in blueprint.sinks.items():
        if receipts.get(name):
            # Whoever read our output has gone: that is no trouble of the sink's.
            with connector_call(blueprint.job, name, passing=(BrokenPipeError,)):
                sink.commit(batch, receipts[name])


def discard(blueprint: Blueprint, receipts: Mapping[str, list[Any]]) -> None:
    """Remove what was staged for sinks and will never be visible."""
    for name, sink in blueprint.sinks.items():
        if receipts.get(name):
            with connector_call(blueprint.job, name):
                sink.discard(receipts[name])


def tidy(blueprint: Blueprint) -> None:
    """Let sinks remove what crashes have left; only when nothing waits for any of them."""
    for name, sink in blueprint.sinks.items():
        with connector_call(blueprint.job, name):
            sink.tidy(blueprint.job)
