"""The documentation: links lead somewhere, code can be read, jobs are valid, nothing is left out."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import penstock as ps
from penstock.cluster import worker_policy
from penstock.cluster.worker_supervision import SupervisionTimeouts
from penstock.engine.driver import query_runtime
from penstock.local import cluster_shutdown
from penstock.parameters import params_set_to

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")), *DOCS.rglob("*.md")]
)

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


_RUNNING = {"ps.run", "ps.start", "ps.testing.run"}
_LATER = (ast.FunctionDef, ast.ClassDef, ast.If)
"""Statements in which a call is not made when the block is run; an ``if`` is that for ``__main__``."""


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text())


def _anchors(page: Path) -> set[str]:
    """Return what a heading can be linked to by, as GitHub makes it."""
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(_prose(page)))
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_leads_to_something_that_exists(page: Path) -> None:
    wrong = []
    for link in _LINK.findall(_prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
            wrong.append(link)
    assert wrong == []


_TEST = re.compile(r"\btests/[\w/]+\.py(?:::(\w+))?")
_BENCHMARK = re.compile(r"\bbenchmarks/(\w+)\.py|python -m benchmarks(?: --only |\.)(\w+)")
CLAIMING = [
    ROOT / "README.md",
    DOCS / "reference" / "figures.md",
    DOCS / "reference" / "status.md",
    *sorted((DOCS / "explanation").glob("*.md")),
]
"""Pages that say what Penstock does, and how well, and not how it is used."""


def _named(text: str) -> Iterator[tuple[Path, str]]:
    """Return the files of tests and benchmarks that a text names, each with a function if it names one."""
    for match in _TEST.finditer(text):
        yield ROOT / match[0].partition("::")[0], match[1] or ""
    for match in _BENCHMARK.finditer(text):
        yield ROOT / "benchmarks" / f"{match[1] or match[2]}.py", ""


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_test_and_benchmark_that_is_named_exists(page: Path) -> None:
    wrong = [
        f"{file.relative_to(ROOT)}::{function}"
        for file, function in _named(page.read_text())
        if not file.exists() or f"def {function}" not in file.read_text()
    ]
    assert wrong == []


@pytest.mark.parametrize("page", CLAIMING, ids=_name)
def test_what_is_claimed_can_be_looked_up(page: Path) -> None:
    assert list(_named(page.read_text())), "the page names no test and no benchmark"


def test_each_point_of_what_it_adds_to_spark_names_what_shows_it() -> None:
    page = (DOCS / "explanation" / "features.md").read_text()
    section = page.partition("## What it adds\n")[2].partition("\n## ")[0]
    points = [f"- {point}" for point in section.split("\n- ")[1:]]
    assert len(points) > 5
    assert [point for point in points if not list(_named(point))] == []


def test_each_figure_of_the_readme_names_its_benchmark() -> None:
    section = (ROOT / "README.md").read_text().partition("## Five figures\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(rows) == 5
    assert [row for row in rows if not list(_named(row))] == []


def test_the_readme_is_one_page() -> None:
    assert len(_prose(ROOT / "README.md").split()) <= 600


_STRONG = re.compile(
    r"\b(never|always|exactly|guarantee[sd]?|no record|nothing is lost|loses? nothing|cannot|at most)\b", re.I
)
_FAULT = re.compile(
    r"\b(dies?|died|dead|deaths?|crash\w*|kill\w*|lost|loses?|twice|doubled?|repeat\w*|paused|cut off"
    r"|hangs?|hung|power cuts?|damaged)\b",
    re.I,
)
_MARKUP = re.compile(r"`[^`]*`|\[[^\]]*\]\([^)]*\)")
_PIECE = re.compile(r"\n\s*\n|\n(?=- |\d+\. |\| )")


def _claims(section: str) -> list[str]:
    """Return paragraphs, points and rows that say in strong words what happens when something goes wrong.

    Links and names do not count: a page may be called "exactly once", and a setting, too.
    """
    pieces = [_MARKUP.sub("", piece) for piece in _PIECE.split(section) if not piece.startswith("#")]
    return [piece for piece in pieces if _STRONG.search(piece) and _FAULT.search(piece)]


@pytest.mark.parametrize("page", CLAIMING, ids=_name)
def test_a_section_that_promises_something_of_faults_names_what_shows_it(page: Path) -> None:
    sections = re.split(r"^(?=#+ )", _prose(page), flags=re.MULTILINE)
    unproven = {
        section.partition("\n")[0]: found
        for section in sections
        if (found := _claims(section)) and not list(_named(section))
    }
    assert unproven == {}


def test_which_words_promise_something_of_faults() -> None:
    text = """# A page

It never loses a record that was acknowledged when a node dies.

- A name never ends with a dot.
- A batch that was interrupted is repeated, and its output is there
  exactly once.

| [never](x.md) | killed |
"""
    assert [claim.split()[1] for claim in _claims(text)] == ["never", "A"]


def test_the_page_on_guarantees_has_the_times_of_the_code() -> None:
    page = (DOCS / "explanation" / "guarantees.md").read_text()
    section = page.partition("\n## How long a stop waits\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|", section, re.MULTILINE))
    expected = {
        "`handle.stop": query_runtime._STOP_SECONDS,
        "`penstock kill JOB`": SupervisionTimeouts().leave,
        "`penstock update`": worker_policy.TAKE_OVER_AFTER,
        "`penstock down`": cluster_shutdown.WORKER_SECONDS,
    }
    for begin, seconds in expected.items():
        [told] = [told for what, told in rows.items() if what.startswith(begin)]
        assert told.startswith(f"{seconds:g} s"), begin


def test_the_index_has_every_page() -> None:
    index = DOCS / "index.md"
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in _LINK.findall(_prose(index))}
    missing = [_name(page) for page in DOCS.rglob("*.md") if page != index and page.resolve() not in linked]
    assert sorted(missing) == []


def test_the_reference_has_every_public_name() -> None:
    page = (DOCS / "reference" / "api.md").read_text()
    assert [name for name in ps.__all__ if not re.search(rf"\bps\.{name}\b", page)] == []


def test_the_page_of_docstrings_has_every_public_name() -> None:
    page = (DOCS / "reference" / "docstrings.md").read_text()
    given = set(re.findall(r"^::: penstock\.([\w.]+)$", page, re.MULTILINE))
    without = {"__version__", "testing", *(partitioning.name for partitioning in ps.Partitioning)}
    assert given == {*ps.__all__, "testing.run", "testing.load"} - without


def _blocks() -> Iterator[Any]:
    for page in sorted([*(DOCS / "tutorial").glob("*.md"), *(DOCS / "how-to").glob("*.md")]):
        text = page.read_text()
        for match in _FENCE.finditer(text):
            if match[1] == "python":
                line = text.count("\n", 0, match.start(2)) + 1
                yield pytest.param(page, line, match[2], id=f"{page.stem}:{line}")


def _compiled(page: Path, line: int, code: str) -> Any:
    return compile("\n" * (line - 1) + code, str(page), "exec", dont_inherit=True)


def _built(code: str) -> str:
    """Return a block up to where it runs what it has built."""
    for statement in ast.parse(code).body:
        calls = [ast.unparse(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)]
        if not isinstance(statement, _LATER) and not _RUNNING.isdisjoint(calls):
            return "".join(code.splitlines(keepends=True)[: statement.lineno - 1])
    return code


BLOCKS = list(_blocks())
JOBS = [b for b in BLOCKS if "import penstock as ps" in b.values[2] and "ps.Job(" in b.values[2]]


@pytest.mark.parametrize(("page", "line", "code"), BLOCKS)
def test_code_can_be_read(page: Path, line: int, code: str) -> None:
    _compiled(page, line, code)


@pytest.mark.parametrize(("page", "line", "code"), JOBS)
def test_jobs_are_valid(
    page: Path, line: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block that imports Penstock and makes a job is whole: it is run, and its jobs are validated."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    module = ModuleType(f"docs_{page.stem.replace('-', '_')}_{line}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with params_set_to(dict.fromkeys(re.findall(r'ps\.params\["(\w+)"\]', code), "1")):
        exec(_compiled(page, line, _built(code)), module.__dict__)
    found = list(vars(module).values())
    makers = [f for f in found if isinstance(f, FunctionType) and f.__annotations__.get("return") is ps.Job]
    jobs = [job for job in found if isinstance(job, ps.Job)] + [make() for make in makers]
    assert jobs, "a block that mentions a job has none"
    for job in jobs:
        job.validate()
