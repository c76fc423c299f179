"""What the Java of a driver is started with beside the settings of its job."""

from __future__ import annotations

import pytest

from penstock.spark import spark_session


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "archive_options", lambda: ["-XX:SharedArchiveFile=/a b/c.jsa"])
    monkeypatch.setenv("PENSTOCK_JAVA_OPTIONS", "-XX:+UseZGC")


def test_what_a_job_says_comes_last() -> None:
    found = spark_session._with_options_of_this_machine("-Xss4m")
    assert found == "'-XX:SharedArchiveFile=/a b/c.jsa' -XX:+UseZGC -Xss4m"


def test_who_records_an_archive_uses_none() -> None:
    found = spark_session._with_options_of_this_machine("-XX:ArchiveClassesAtExit=/new.jsa")
    assert found == "-XX:+UseZGC -XX:ArchiveClassesAtExit=/new.jsa"
