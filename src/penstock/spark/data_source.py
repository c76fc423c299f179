"""The direct stage of a job as a Spark data source: reading, and all vertices up to a keyed edge or a sink.

Running these vertices where data is read saves sending each record from Python to Java and back.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from penstock.engine.driver.batch_planner import BatchPlanner
from penstock.engine.execution.batch_stages import failure_row, run_source_stage
from penstock.engine.execution.blueprint_transfer import load_program, unpack_blueprint
from penstock.engine.storage.serialization import pack, unpack
from penstock.errors import PenstockError
from penstock.spark.batch_rows import SCHEMA, to_batches


class PenstockSource(DataSource):
    """The data source that runs the direct stage of one job."""

    @classmethod
    def name(cls) -> str:
        """Return the name under which it is registered."""
        return "penstock"

    def schema(self) -> str:
        """Return the schema of the rows between the stages."""
        return self.options.get("rows", SCHEMA)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return the reader of the job whose blueprint is at the given path."""
        planner, worker = pickle.loads(Path(self.options["blueprint"]).read_bytes())  # noqa: S301 - our own
        return PenstockReader(worker, planner)


class PenstockReader(DataSourceStreamReader):
    """Plans batches on the driver and runs their parts on the workers."""

    def __init__(self, worker: bytes, planner: bytes) -> None:
        self._worker = worker
        self._packed_planner = planner
        self._planner: BatchPlanner | None = None

    @property
    def planner(self) -> BatchPlanner:
        """The planner, on the driver's side of the reader."""
        if self._planner is None:
            self._planner = BatchPlanner(unpack_blueprint(self._packed_planner))
        return self._planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offset at which the first batch starts."""
        return self.planner.begin()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return no limit: sources limit their batches themselves."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """Return the offset at which the next batch ends; the start itself if there is nothing to do."""
        return self.planner.latest(start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide a batch into parts."""
        return [InputPartition(pack((part,))) for part in self.planner.parts(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Run one part, on a worker."""
        try:
            program = load_program(self._worker)
        except PenstockError as error:
            return to_batches([failure_row(-1, error)])
        (part,) = unpack(partition.value)
        return to_batches(run_source_stage(program, part), program.blueprint.plan.native)

    def stop(self) -> None:
        """Exit silently when Spark has closed the connection: PySpark would print a traceback."""
        if isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            os._exit(0)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the ledger records the batch."""

    def __getstate__(self) -> dict[str, Any]:
        return {"_worker": self._worker, "_packed_planner": b"", "_planner": None}
