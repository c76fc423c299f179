"""What `make reference` runs: writes the tables of settings into the marked parts of docs/reference.

They derive from penstock.job_settings; a test fails while a page is not as this script writes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from penstock.job_settings import Declaration, JobSettings, declarations

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"
_PART = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_UNITS = ((1 << 30, "g"), (1 << 20, "m"))


def settings() -> Iterator[list[str]]:
    """Settings of a job, with their options of ``penstock submit``."""
    yield ["setting", "option", "default", "values", "what it is"]
    for each in declarations(JobSettings):
        row = [f"`{'.'.join(each.path)}`", f"`{_option(each)}`", _default(each), _values(each)]
        yield [*row, each.about.text]


TABLES: Mapping[str, Callable[[], Iterator[list[str]]]] = {"settings": settings}


def _option(each: Declaration) -> str:
    if each.kind is bool:
        return f"{each.flag}`, `--no-{each.flag.removeprefix('--')}"
    return f"{each.flag} {each.about.metavar or '|'.join(each.choices) or 'N'}"


def _default(each: Declaration) -> str:
    if each.default in ((), {}, None, ""):
        return ""
    if each.about.unit:
        return next(f"`{each.default // size}{unit}`" for size, unit in _UNITS if each.default % size == 0)
    return f"`{str(each.default).lower() if each.kind is bool else each.default}`"


def _values(each: Declaration) -> str:
    if each.choices:
        return ", ".join(f"`{choice}`" for choice in each.choices)
    least, most = each.bounds
    if least is not None and most is not None:
        return f"{_number(each, least)} to {_number(each, most)}"
    if each.kind is bool:
        return "`true`, `false`"
    return "several" if isinstance(each.default, tuple | dict) else "text"


def _number(each: Declaration, value: int) -> str:
    return f"{value >> 20:,} MiB" if each.about.unit else f"{value:,}"


def _table(rows: Iterator[list[str]]) -> str:
    heading, *rest = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [heading, ["---"] * len(heading), *rest]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines).replace("|  |", "| |") + "\n"


def updated(page: str) -> str:
    """Return a page with its marked parts as they are to be."""
    return _PART.sub(lambda part: f"{part[1]}\n{_table(TABLES[part[2]]())}\n{part[3]}", page)


def main() -> None:
    """Write all pages."""
    for page in sorted(PAGES.glob("*.md")):
        before = page.read_text(encoding="utf-8")
        after = updated(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            sys.stderr.write(f"wrote {page.name}\n")


if __name__ == "__main__":
    main()
