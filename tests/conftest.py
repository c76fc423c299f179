"""Settings of all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support import java_starts
from support.engines import EITHER, LOCAL, SPARK
from support.running import Engine
from support.shared_spark import spark_session

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")

java_starts.begin()

# A shell that runs the tests in the background lets them ignore signals, and with them all that they start.
for _number, _default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _default)


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        terminalreporter.write_line(f"Spark processes started: {java_starts.count()}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run without the long tests that starts more Spark processes than it may."""
    short = session.config.getoption("markexpr") == "not full"
    if short and not hasattr(session.config, "workerinput") and java_starts.count() > java_starts.MOST:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
