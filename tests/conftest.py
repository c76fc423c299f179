"""Settings of all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from support import java_starts
from support.dealing import ByFileAndSession
from support.engines import EITHER, LOCAL, SPARK
from support.running import Engine
from support.shared_spark import spark_session
from support.starting_nothing import refuse_to_start

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile(
    "penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30
)
# Tests whose examples take longer, or less long, draw a part of that number, or a multiple of it.
settings.register_profile("penstock-full", settings.get_profile("penstock"), max_examples=200)
settings.load_profile("penstock")

java_starts.begin()

# A shell that runs the tests in the background lets them ignore signals, and with them all that they start.
for _number, _default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _default)


_PURE = [Path(__file__).with_name(name) for name in ("unit", "property")]


@pytest.fixture(autouse=True)
def _pure_tests_start_nothing(request: pytest.FixtureRequest) -> None:
    """They are quick, and run side by side."""
    if any(request.path.is_relative_to(folder) for folder in _PURE):
        refuse_to_start(request.getfixturevalue("monkeypatch"))


@pytest.fixture(scope="session")
def spark_says(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start the session that all tests share; the file has what Java and the workers print of their own."""
    with spark_session(tmp_path_factory.mktemp("spark") / "stderr") as said:
        yield said


@pytest.fixture
def local() -> Engine:
    """Run jobs without Spark."""
    return Engine(LOCAL)


@pytest.fixture
def spark(spark_says: Path) -> Engine:
    """Run jobs in the Spark session that all tests share."""
    return Engine(SPARK)


@pytest.fixture(params=EITHER)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Run jobs without Spark, and on Spark as well in ``make test-full``."""
    if request.param == SPARK:
        request.getfixturevalue("spark_says")
    return Engine(request.param)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFileAndSession | None:
    return ByFileAndSession(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        terminalreporter.write_line(f"Spark processes started: {java_starts.count()}")
        if _too_many(config):
            terminalreporter.write_line(f"Without the long tests {java_starts.MOST} may be started")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run without the long tests that starts more Spark processes than it may."""
    if not hasattr(session.config, "workerinput") and _too_many(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _too_many(config: pytest.Config) -> bool:
    return config.getoption("markexpr") == "not full" and java_starts.count() > java_starts.MOST
