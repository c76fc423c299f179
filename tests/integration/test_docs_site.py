"""The documentation as a site: it is built without a warning, is whole, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OUTSIDE = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/results.md")
"""Pages of the site that are not in ``docs/``."""
_ELSEWHERE = re.compile(r"(?:[a-z]+:)?//", re.I)
_LOADED_BY_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?\s*(?:https?:)?//", re.I)


@dataclass
class _Page(HTMLParser):
    """What is of interest in a page of the site."""

    text: str
    anchors: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    """What a browser asks for when it shows the page."""

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.add(given.get("href", ""))
        elif "src" in given:
            self.loaded.add(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # A request to the network would go to a port on which nobody listens.
    nowhere = {f"{name}_proxy": "http://127.0.0.1:9" for name in ("http", "https", "HTTP", "HTTPS")}
    environment = {**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, _Page]:
    """Return the pages of the site by their paths."""
    return {str(file.relative_to(site)): _Page(file.read_text()) for file in _files(site, "*.html")}


def _files(site: Path, pattern: str) -> Iterator[Path]:
    return (file for file in sorted(site.rglob(pattern)) if file.name != "404.html")


def test_every_page_is_in_the_site_and_in_its_navigation(pages: dict[str, _Page]) -> None:
    written = {*OUTSIDE, *(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))}
    expected = {f"{name.removesuffix('.md')}.html" for name in written}
    assert set(pages) == expected
    start = pages["index.html"].text
    navigation = _Page(start[start.index('class="md-nav md-nav--primary') : start.index("<article")])
    assert expected - {"index.html"} - {link.partition("#")[0] for link in navigation.links} == set()


def test_every_link_leads_to_something_in_the_site(site: Path, pages: dict[str, _Page]) -> None:
    wrong = []
    for name, page in pages.items():
        for link in sorted(page.links | page.loaded):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = unquote(link).partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            known = pages[target].anchors if target in pages else set()
            if not (site / target).exists() or (anchor and target in pages and anchor not in known):
                wrong.append(f"{name}: {link}")
    assert wrong == []


def test_what_the_code_of_a_page_links_to_is_in_the_site(site: Path) -> None:
    copied = site / "source" / "src" / "penstock" / "graph" / "job.py.txt"
    assert copied.read_text() == (ROOT / "src" / "penstock" / "graph" / "job.py").read_text()


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[str, _Page]) -> None:
    loaded = {
        f"{name}: {link}" for name, page in pages.items() for link in page.loaded if _ELSEWHERE.match(link)
    }
    assert loaded == set()
    styles = [str(file) for file in site.rglob("*.css") if _LOADED_BY_STYLE.search(file.read_text())]
    assert styles == []
    # The theme would load a program for diagrams of this kind from elsewhere.
    assert [name for name, page in pages.items() if 'class="mermaid' in page.text] == []


def test_code_in_tables_is_shown_as_it_is_typed(pages: dict[str, _Page]) -> None:
    assert "<code>VOID|waiting</code>" in pages["explanation/worker-states.html"].text
    assert [name for name, page in pages.items() if re.search(r"<code>[^<]*\\\|", page.text)] == []


def test_docstrings_are_in_the_site(pages: dict[str, _Page]) -> None:
    page = pages["reference/docstrings.html"]
    assert "penstock.Job" in page.anchors
    assert "Reads a log from its beginning." in page.text
