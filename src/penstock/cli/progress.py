"""The line that tells how a run goes: one that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from penstock.engine.report import Report

_EVERY = 2.0
"""Seconds between two plain lines."""


class Progress:
    """Shows a run's report on standard error while it runs."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._live = sys.stderr.isatty()
        self._shown_at = 0.0
        self._batches = -1
        self._before = (0.0, 0)
        self._rate = 0.0

    def __enter__(self) -> Progress:
        self._say(f"{self._job}: starting Spark …")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def show(self, report: Report) -> None:
        """Show where the run is."""
        now = time.monotonic()
        if not self._live and (report.batches == self._batches or now - self._shown_at < _EVERY):
            return
        then, records = self._before
        if now - then >= 1.0:
            self._rate = (report.records_in - records) / (now - then) if then else 0.0
            self._before = (now, report.records_in)
        self._shown_at, self._batches = now, report.batches
        lag = "?" if report.lag is None else f"{report.lag:,}"
        self._say(
            f"{self._job}: in {report.records_in:,}  out {report.records_out:,}  {self._rate:,.0f}/s  "
            f"lag {lag}  batch {report.batch_seconds * 1000:,.0f} ms  {_aside(report, '  ')}"
        )

    def note(self, text: str) -> None:
        """Print something beside the line, where there is something."""
        if text:
            sys.stderr.write(("\r\033[K" if self._live else "") + text.rstrip() + "\n")

    def conclude(self, report: Report, asked: bool) -> None:
        """Print what the run has done."""
        how = "stopped" if asked else "done"
        batches = "1 batch" if report.batches == 1 else f"{report.batches:,} batches"
        records = "1 record" if report.records_in == 1 else f"{report.records_in:,} records"
        self._shown_at = 0.0
        lines = [
            f"{self._job}: {how} after {batches} in {report.seconds:.1f} s, "
            f"{records} in, {report.records_out:,} out, {_aside(report, ', ')}"
        ]
        width = max(map(len, report.vertices))
        for name, vertex in report.vertices.items():
            lines.append(f"  {name:<{width}}  in {vertex.records_in:>12,}  out {vertex.records_out:>12,}")
        sys.stderr.write("\n".join(lines) + "\n")

    def _say(self, text: str) -> None:
        sys.stderr.write(f"\r\033[K{text}" if self._live else f"{text}\n")
        sys.stderr.flush()


def _aside(report: Report, between: str) -> str:
    """Say how many records did not go the main way: late and failed ones only where there are some."""
    counts = [("discarded", report.discarded)]
    counts += [(name, count) for name, count in (("late", report.late), ("errors", report.errors)) if count]
    if between == ", ":
        return between.join(f"{count:,} {name}" for name, count in counts)
    return between.join(f"{name} {count:,}" for name, count in counts)
