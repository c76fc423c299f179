"""Measures ours again, against what the solvers came to: ``python -m benchmarks.backup_location_again``.

The solvers take an hour for both figures, and what they come to does not change when our methods do.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import machine
from benchmarks.backup_location import large_rows, measure_again, read_points, rows_of, write_points
from benchmarks.table import merged, write

ROUNDS = 10


def main() -> None:
    """Write the points and the table anew."""
    points = [measure_again(point, ROUNDS) for point in read_points()]
    write_points(points)
    rows = [row for point in points for row in rows_of(point)] + large_rows(quick=False)
    folder = Path(__file__).parent
    write(folder, merged(folder, rows, ["backup_location"]), machine.facts(), quick=False)


if __name__ == "__main__":
    main()
