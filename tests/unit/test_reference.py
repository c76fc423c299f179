"""The generated tables of the reference are as scripts/write_reference.py writes them."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from penstock.job_settings import JobSettings, declarations

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference"
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "write_reference.py"))


@pytest.mark.parametrize("page", sorted(page.name for page in PAGES.glob("*.md")))
def test_a_page_is_up_to_date(page: str) -> None:
    text = (PAGES / page).read_text(encoding="utf-8")
    assert SCRIPT["updated"](text) == text, "run make reference"


def test_each_table_is_in_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))
    assert [name for name in SCRIPT["TABLES"] if f"<!-- generated: {name} -->" not in pages] == []


def test_each_setting_is_in_the_table() -> None:
    page = (PAGES / "settings.md").read_text(encoding="utf-8")
    for each in declarations(JobSettings):
        assert f"| `{'.'.join(each.path)}` | `{each.flag}" in page
