"""Wrong graphs: every code of the reference, through the command line."""

from __future__ import annotations

import re
from pathlib import Path

from bad_columns import COLUMNS
from bad_rows import Row, Shell, rows
from bad_settings import OPERATORS, SETTINGS
from bad_shapes import SHAPES, WINDOWS

TABLE = [*SETTINGS, *OPERATORS, *SHAPES, *WINDOWS, *COLUMNS]
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "graph.md"


@rows(TABLE)
def test_a_wrong_graph_is_told_with_its_code(shell: Shell, row: Row) -> None:
    file = shell.write(f"bad_{row.name.replace('-', '_')}.py", row.file)
    said = shell.run("explain", file)
    assert said.code == row.exit_code
    assert said.err.startswith("error: job '")
    assert f"[{row.code}] " in said.err
    for words in row.says:
        assert words in said.err
    assert shell.run("run", file).err == said.err, "a run says the same, before Spark is started"


def test_the_table_has_every_code_of_the_reference() -> None:
    problems = REFERENCE.read_text().partition("## Problems")[2].partition("\n## ")[0]
    codes = set(re.findall(r"^\| `([a-z-]+)` \|", problems, re.MULTILINE))
    assert len(codes) > 25
    assert codes - {str(row.code) for row in TABLE} == set()
