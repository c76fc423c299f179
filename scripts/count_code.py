"""Counts modules and lines of code of a tree: no blank lines, comments or docstrings.

``python scripts/count_code.py [FOLDER]`` prints the number of modules, of lines of code, the median and the
longest module.
"""

# ruff: noqa: T201 - it talks to a person

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
_IGNORED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}


def code_lines(text: str) -> int:
    """Return how many lines of a module hold code.

    >>> code_lines('"Docs."\\n\\n# why\\nx = (1,\\n  2)\\n')
    2
    """
    documented = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _IGNORED:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def main() -> None:
    """Print the figures of a folder, ``src`` if none is named."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src"
    counts = {file: code_lines(file.read_text()) for file in sorted(folder.rglob("*.py"))}
    longest = max(counts, key=lambda file: len(file.read_text().splitlines()))
    lengths = [len(file.read_text().splitlines()) for file in counts]
    print(f"modules: {len(counts)}, of them with code: {sum(map(bool, counts.values()))}")
    print(f"lines of code: {sum(counts.values())}")
    print(f"lines of a module: median {median(lengths):.0f}, longest {max(lengths)} ({longest})")


if __name__ == "__main__":
    main()
