"""The table of what the tests show names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_TEST = re.compile(r"`((?:unit|property|integration|fault)/[\w/]+)(?:::(\w+))?`")


def test_every_test_that_the_table_names_exists() -> None:
    named = _TEST.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert len(named) > 100
    wrong = []
    for file, function in sorted(set(named)):
        path = ROOT / "tests" / f"{file}.py"
        if not path.exists() or (function and f"def {function}(" not in path.read_text()):
            wrong.append(f"{file}::{function}" if function else file)
    assert wrong == []
