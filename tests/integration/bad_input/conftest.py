"""A home for each test, and one Spark session for all of them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bad_rows import Shell, check_manners


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = set(sys.modules)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield Shell(tmp_path)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


@pytest.fixture(scope="session")
def spark_says(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start the session that all rows share, and keep what Java and the workers print of their own."""
    from penstock.spark.session import open_session

    said = tmp_path_factory.mktemp("spark") / "stderr"
    real = os.dup(2)
    with said.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        open_session("local[2]", {}, {}, {})
    finally:
        os.dup2(real, 2)
        os.close(real)
    yield said
    check_manners(said.read_text(errors="replace"))


@pytest.fixture
def spark(shell: Shell, spark_says: Path) -> Iterator[Shell]:
    """A shell whose jobs run in the shared session."""
    before = spark_says.stat().st_size
    yield shell
    check_manners(spark_says.read_bytes()[before:].decode(errors="replace"))
