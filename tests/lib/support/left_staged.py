"""What sinks have left in their staging."""

from __future__ import annotations

from pathlib import Path

from penstock.connect.sink_staging import DONE


def left_staged(folder: Path) -> list[Path]:
    """Return the files in a staging folder that are no marks: what waits, and what nobody has removed."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != DONE]
