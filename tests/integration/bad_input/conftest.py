"""A home for each test, and what its jobs run on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bad_rows import Shell, check_manners

from support.engines import EITHER
from support.running import start_without_spark


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


@pytest.fixture
def local(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell whose jobs run without Spark."""
    monkeypatch.setattr("penstock.spark.spark_runtime.start", start_without_spark)
    return shell


@pytest.fixture
def spark(shell: Shell, spark_says: Path) -> Iterator[Shell]:
    """A shell whose jobs run in the shared session."""
    before = spark_says.stat().st_size
    yield shell
    check_manners(spark_says.read_bytes()[before:].decode(errors="replace"))


@pytest.fixture(params=EITHER)
def jobs(request: pytest.FixtureRequest) -> Shell:
    """A shell whose jobs run without Spark, and on Spark as well in ``make test-full``."""
    shell: Shell = request.getfixturevalue(request.param)
    return shell
