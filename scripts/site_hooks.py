"""Hooks of MkDocs: links of the documentation may lead out of ``docs/``.

Some pages outside of ``docs/`` are pages of the site. Other files that a page links to are copied to
``source/`` of the site, as text: the site is complete, and shows the code of the revision that it describes.
A link to a folder becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = "docs"
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/results.md")
"""Pages of the site that are not below ``docs/``; each has its path in the repository."""
START = {"README.md": "index.md"}
"""Files of the repository in whose place the site has a page of its own."""

_FENCE = re.compile(r"^(?P<indent> *)```.*?^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository, and the files that pages link to."""
    for path in PAGES:
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    linked = {path for file in files.documentation_pages() for path in _linked(file)}
    for path in sorted(linked):
        place = _place(path)
        if place is not None and files.get_file_from_path(place) is None and (ROOT / path).is_file():
            files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Let links that leave ``docs/``, or a page outside of it, lead to where the site has their targets."""
    source = page.file.src_uri

    def moved(link: re.Match[str]) -> str:
        label, path, anchor = link[1], _target(source, link[2]), link[3] or ""
        if path is None or not (ROOT / path).exists():
            return link[0]  # elsewhere, or wrong: then MkDocs says so
        place = _place(path)
        if place is None:
            return label
        return f"[{label}]({posixpath.relpath(place, posixpath.dirname(source) or '.')}{anchor})"

    return "".join(text if is_code else _pipes(_LINK.sub(moved, text)) for text, is_code in _pieces(markdown))


def _pipes(text: str) -> str:
    """Let code in tables have its ``|``: GitHub wants a backslash before it, which MkDocs would show."""
    lines = text.split("\n")
    return "\n".join(
        _CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line
        for line in lines
    )


def _pieces(markdown: str) -> Iterator[tuple[str, bool]]:
    """Divide a page into its blocks of code and what is between them."""
    end = 0
    for fence in _FENCE.finditer(markdown):
        yield markdown[end : fence.start()], False
        yield fence[0], True
        end = fence.end()
    yield markdown[end:], False


def _linked(file: File) -> Iterator[str]:
    """Return the paths in the repository of what a page links to."""
    for text, is_code in _pieces(file.content_string):
        for link in () if is_code else _LINK.finditer(text):
            path = _target(file.src_uri, link[2])
            if path is not None:
                yield path


def _target(source: str, link: str) -> str | None:
    """Return the path in the repository that a link of a page means; None for an address."""
    if re.match(r"[a-z]+:", link):
        return None
    origin = source if source in PAGES else f"{DOCS}/{source}"
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def _place(path: str) -> str | None:
    """Return where the site has a file of the repository; None for a folder."""
    if path.startswith(f"{DOCS}/"):
        return path.removeprefix(f"{DOCS}/")
    if path in PAGES or path in START:
        return START.get(path, path)
    return None if (ROOT / path).is_dir() else f"source/{path}.txt"
