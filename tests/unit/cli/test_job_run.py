"""What ``penstock run`` says of a run at its end."""

from __future__ import annotations

import pytest

from penstock.cli.job_run import Progress
from penstock.engine.batch_report import Report, VertexReport


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 records in"), (1, "1 record in"), (1200, "1,200 records in")]
)
def test_a_number_and_its_noun_agree(capsys: pytest.CaptureFixture[str], count: int, words: str) -> None:
    report = Report("job", {"in": VertexReport()})
    report.records_in = count
    Progress("job").conclude(report, asked=False)
    assert f"job: done after 0 batches in 0.0 s, {words}, 0 out, 0 discarded\n" in capsys.readouterr().err
