"""The table of results, for a person and for a program."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.halves import Comparison


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    benchmark: str
    other_name: str
    unit: str
    ours: float | None
    other: float | None
    ratio: float | None
    target: str
    met: bool | None
    """None where the figure is reported and no target was set."""
    note: str = ""
    ours_runs: tuple[float, ...] = ()
    other_runs: tuple[float, ...] = ()


def compare(
    benchmark: str,
    other_name: str,
    unit: str,
    comparison: Comparison,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    note: str = "",
) -> Row:
    """Make the line for two competitors, with a bound for the ratio of ours to the other."""
    ratio = comparison.ratio
    if at_least is not None:
        target, met = f"at least {at_least:g}", ratio >= at_least
    elif at_most is not None:
        target, met = f"at most {at_most:g}", ratio <= at_most
    else:
        target, met = "", None
    return Row(
        benchmark=benchmark,
        other_name=other_name,
        unit=unit,
        ours=median(comparison.ours),
        other=median(comparison.other),
        ratio=ratio,
        target=target,
        met=met,
        note=note,
        ours_runs=comparison.ours,
        other_runs=comparison.other,
    )


def failed(benchmark: str, reason: str) -> Row:
    """Make the line for a benchmark that could not be run."""
    return Row(benchmark, "", "", None, None, None, "", met=False, note=reason)


def number(value: float | None) -> str:
    """Write a figure with three or four digits that mean something.

    >>> number(306185.2), number(0.1234), number(17.25), number(None)
    ('306,185', '0.123', '17.2', '')
    """
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def markdown(rows: Sequence[Row], facts: dict[str, str], *, quick: bool) -> str:
    """Write the table."""
    lines = ["# Benchmarks", ""]
    if quick:
        lines += [
            "**A quick run**: small inputs, one round. It shows that all works, not how fast it is.",
            "",
        ]
    lines += [f"- {name}: {fact}" for name, fact in facts.items()]
    lines += [
        "",
        "Competitors take turns within one run; a ratio is the median of the ratios of neighbouring runs.",
        "The start of Spark and the first batch of each query are not counted, on either side, but where",
        "a line is about them.",
        "Ours writes its results to a log, exactly once, unless a line says otherwise; the other keyed jobs",
        "throw theirs away, in the JVM (`noop`) or in Bytewax's sink, which favours them.",
        "",
        "| benchmark | ours | other | unit | against | ratio | target | met |",
        "|---|---:|---:|---|---|---:|---|---|",
    ]
    for row in rows:
        met = {True: "yes", False: "**no**", None: ""}[row.met]
        lines.append(
            f"| {row.benchmark} | {number(row.ours)} | {number(row.other)} | {row.unit} "
            f"| {row.other_name} | {number(row.ratio)} | {row.target} | {met} |"
        )
    notes = [f"- **{row.benchmark}**: {row.note}" for row in rows if row.note]
    return "\n".join([*lines, "", *notes]).rstrip() + "\n"


def merged(folder: Path, rows: Sequence[Row], anew: Collection[str]) -> list[Row]:
    """Return the rows of the last results, with those that were measured anew in their place or behind.

    That one of the benchmarks ``anew`` once failed is not told any more.
    """
    file = folder / "results.json"
    known = [Row(**fields) for fields in json.loads(file.read_text())["rows"]] if file.exists() else []
    fresh = {(row.benchmark, row.other_name): row for row in rows}
    known = [row for row in known if row.benchmark not in anew]
    kept = [fresh.pop((row.benchmark, row.other_name), row) for row in known]
    return [*kept, *fresh.values()]


def write(folder: Path, rows: Sequence[Row], facts: dict[str, str], *, quick: bool) -> None:
    """Write results.md and results.json."""
    (folder / "results.md").write_text(markdown(rows, facts, quick=quick), encoding="utf-8")
    data = {"quick": quick, "machine": facts, "rows": [asdict(row) for row in rows]}
    (folder / "results.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
