"""The sinks of a job.

Writes records through one writer per sink and task, and publishes, discards or cleans up staged output.
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
        """Digests of the records written, by sink; only with replicas, which compare them."""

    def begin(self, origin: str) -> None:
        """Set the origin of the following records within the batch, from which their ids are derived."""
        self._origin = origin
        for ids in self._ids.values():
            ids.begin(origin)

    def has(self, sink: str) -> bool:
        """Return whether the job has the sink; side streams exist only if they can receive records."""
        return sink in self._sinks

    def write(self, sink: str, records: list[Record] | Columns, reject: Reject | None) -> None:
        """Write records to a sink; ``reject`` handles those that it cannot store."""
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
                # Keys of several types do not fit into a column.
                takes = getattr(writer, "takes_columns", False) and not isinstance(records.keys, list)
                given = cast("list[Record]", records) if takes else records.records()
            else:
                given = records
            with vertex_call(sink):
                writer.write(given)
        except Exception as error:
            raise self._failure(sink, error) from error

    def finish_next(self) -> tuple[str, Receipt | None] | None:
        """Finish one sink and return its name and receipt; None if no sink is open.

        Side streams come last, because a sink may still reject records while it finishes.
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
        """Return the error to raise; a value that a sink cannot store is an error of the job."""
        if isinstance(error, UnstorableValueError):
            return TaskError(self._job, sink, "its input", f"{type(error).__name__}: {error}")
        return connector_error(error, self._job, sink)


def _digest(sink: str, records: list[Record] | Columns) -> int:
    its = records.records() if isinstance(records, Columns) else records
    if sink == SIDES[ERRORS]:
        # The message of an error may contain the address of an object, which differs between processes.
        its = [record._replace(value={**record.value, "message": ""}) for record in its]
    return digest(its)


def publish(blueprint: Blueprint, batch: int, receipts: Mapping[str, list[Any]]) -> None:
    """Make the output of a batch visible in its sinks."""
    for name, sink in blueprint.sinks.items():
        if receipts.get(name):
            # The reader of the standard output has exited: this is not an error of the sink.
            with connector_call(blueprint.job, name, passing=(BrokenPipeError,)):
                sink.commit(batch, receipts[name])


def discard(blueprint: Blueprint, receipts: Mapping[str, list[Any]]) -> None:
    """Remove staged output that will never be published."""
    for name, sink in blueprint.sinks.items():
        if receipts.get(name):
            with connector_call(blueprint.job, name):
                sink.discard(receipts[name])


def tidy(blueprint: Blueprint) -> None:
    """Let sinks remove leftovers of crashes; only when no output is staged."""
    for name, sink in blueprint.sinks.items():
        with connector_call(blueprint.job, name):
            sink.tidy(blueprint.job)
