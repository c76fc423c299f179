"""What it costs to bring each batch to the disk, against leaving that to the operating system."""

from __future__ import annotations

from pathlib import Path

from benchmarks.guarantees import compare_settings
from benchmarks.sizes import Sizes
from benchmarks.table import Row


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Measure batches of a count by key, small and large."""
    return compare_settings(sizes, work, "durability", "none", ("batch",))
