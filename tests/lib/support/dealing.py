"""How tests are dealt out to processes: by files, and all files that share a Spark session to one process.

Each process would start a session of its own otherwise, and each would be slow at first.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

_ROOT = Path(__file__).resolve().parents[3]
_SHARING = re.compile(r"\bspark_says\b|\b(spark|engine): Engine\b|\b(spark|jobs): Shell\b")
"""What is in the files that share the session: one of its fixtures."""


class ByFileAndSession(LoadFileScheduling):  # type: ignore[misc]
    """Deals out files."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "those that share a Spark session" if _shares_session(file) else file


@cache
def _shares_session(file: str) -> bool:
    return file.startswith("tests/integration") and bool(_SHARING.search((_ROOT / file).read_text()))
