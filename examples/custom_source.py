"""A source and a sink of one's own: simulated sensors are read, and a SQLite table is kept, exactly once.

    penstock run examples/custom_source.py --until drained
    python examples/custom_source.py             # the same, and prints the table

Each sensor measures once a minute. The job counts for each of them how often it was too warm. The table is
in the file that $SENSORS_DB names, or else in sensors.db in the folder for temporary files. Run it again and
nothing happens: all readings have been counted. How the two classes work is told in
docs/how-to/write-a-source-or-sink.md.
"""

from __future__ import annotations

import math
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import penstock as ps

SENSORS = 4
READINGS = 1000
TOO_WARM = 24.0


def reading(sensor: int, number: int) -> ps.Record:
    """Return a measurement. The same question always has the same answer, as a source must have it."""
    return ps.Record(f"sensor-{sensor}", 20 + 5 * math.sin(number / 50 + sensor), 60.0 * number)


class SensorSource(ps.Source):
    """Reads all sensors, a few hundred readings a batch. A position says how far each of them was read."""

    bounded = True  # the simulation has an end, so windows are closed there

    def __init__(self, sensors: int, readings: int, *, max_readings_per_batch: int = 300) -> None:
        self.sensors = sensors
        self.readings = readings
        self.max_readings_per_batch = max_readings_per_batch

    def begin(self) -> dict[str, int]:
        """Start with the first reading of each sensor."""
        return {str(sensor): 0 for sensor in range(self.sensors)}

    def latest(self, after: dict[str, int]) -> dict[str, int]:
        """Read to the end, or as far as a batch may go. At the end, this is where we are already."""
        return {
            sensor: min(self.readings, number + self.max_readings_per_batch)
            for sensor, number in after.items()
        }

    def splits(self, start: dict[str, int], end: dict[str, int]) -> Sequence[tuple[int, int, int]]:
        """Make one part of each sensor that has something new; Spark reads them side by side."""
        return [
            (int(sensor), start[sensor], end[sensor]) for sensor in sorted(end) if end[sensor] > start[sensor]
        ]

    def read(self, split: tuple[int, int, int]) -> Iterator[list[ps.Record]]:
        """Read one part. This runs on a worker."""
        sensor, start, end = split
        yield [reading(sensor, number) for number in range(start, end)]

    def lane(self, split: tuple[int, int, int]) -> str:
        """Return the sensor: the readings of one come in the order of their times, those of two do not."""
        return str(split[0])

    def lag(self, after: dict[str, int]) -> int:
        """Return how many readings wait."""
        return sum(self.readings - number for number in after.values())

    def describe(self) -> dict[str, Any]:
        """Return what decides over what is read."""
        return {"sensors": self.sensors}


class SqliteSink(ps.Sink):
    """Keeps the last value of each key in a table, exactly once.

    The table ``applied`` has the receipts that are in. It changes in the same transaction as the values do,
    so a commit that is repeated after a crash finds its receipts there and does nothing.
    """

    transactional = True

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)

    def prepare(self) -> None:
        """Make the tables, unless they are there."""
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS applied (receipt TEXT PRIMARY KEY)")
            database.execute("CREATE TABLE IF NOT EXISTS latest (key TEXT PRIMARY KEY, value INTEGER)")

    def writer(self, context: ps.WriteContext) -> ps.SinkWriter:
        """Collect on the worker. This sink gets a few rows a batch, so they can travel in the receipt."""
        return RowsWriter(context)

    def commit(self, batch: int, receipts: Sequence[Any]) -> None:  # noqa: ARG002
        """Write the rows of all receipts that were not written before."""
        with closing(sqlite3.connect(self.path)) as database, database:
            for receipt in receipts:
                new = database.execute("INSERT OR IGNORE INTO applied VALUES (?)", [receipt["id"]])
                if new.rowcount:
                    database.executemany("INSERT OR REPLACE INTO latest VALUES (?, ?)", receipt["rows"])

    def describe(self) -> dict[str, Any]:
        """Return where the table is."""
        return {"path": self.path}


class RowsWriter(ps.SinkWriter):
    """Collects rows. The name of the attempt tells its receipt from all others, for ever."""

    def __init__(self, context: ps.WriteContext) -> None:
        self.context = context
        self.rows: list[list[Any]] = []

    def write(self, records: list[ps.Record]) -> None:
        """Take what fits the table, and refuse the rest with a reason."""
        for record in records:
            if isinstance(record.value, int):
                self.rows.append([record.key, record.value])
            elif self.context.reject is not None:
                self.context.reject(record, "the table holds whole numbers only")
            else:
                raise ps.UnstorableValueError(f"the table holds whole numbers only, not {record.value!r}")

    def finish(self) -> Any:
        """Hand the rows over, as plain JSON data."""
        return {"id": self.context.task, "rows": self.rows} if self.rows else None


DATABASE = os.environ.get("SENSORS_DB") or str(Path(tempfile.gettempdir()) / "sensors.db")

job = ps.Job("sensors")
sensors = job.source("sensors", SensorSource(SENSORS, READINGS))
warm = job.task("warm", lambda r: (r.key, 1) if r.value > TOO_WARM else None)
count = job.task("count", ps.Count())
sensors >> warm >> count >> job.sink("table", SqliteSink(DATABASE))


if __name__ == "__main__":
    ps.run(job)
    with closing(sqlite3.connect(DATABASE)) as database:
        for key, value in database.execute("SELECT key, value FROM latest ORDER BY key"):
            print(f"{key} was too warm {value} times")
