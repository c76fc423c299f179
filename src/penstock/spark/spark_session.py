"""The Spark session of this process: started on first use, shared by all jobs with the same settings."""

from __future__ import annotations

import atexit
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from penstock.errors import SettingError, cause_of
from penstock.java_runtime import archive_options, check_java, java_options
from penstock.spark.spark_failures import is_java_answering
from penstock.spark.spark_output import filtered_stderr, keep_java_loss_quiet
from penstock.spark.spark_settings import (
    EXTERNAL_EXECUTORS,
    NO_SECRET,
    SECRET_SETTING,
    is_local,
    session_settings,
)

_FAST_PYTHON = Path(__file__).with_name("worker_python.sh")
"""A script that starts Python for a worker most of a second faster than Spark does."""
WORKER_DAEMON = {"spark.python.daemon.module": "penstock.spark.python_worker_daemon"}
"""Makes Spark's workers start with preloaded modules, if they have the same Penstock at the same path."""

SECRET = "_SPARK_AUTH_SECRET"  # noqa: S105 - the name of a variable
"""The environment variable from which Spark reads its secret."""
_JAVA = "spark.driver.extraJavaOptions"
_SOCKET_TIMEOUT = "spark.python.authenticate.socketTimeout"
_EXIT_SECONDS = 10.0
"""Seconds within which Java must exit."""

_own_session: tuple[str, dict[str, str]] | None = None
"""The master and the settings of the session that this module has started."""


def open_session(master: str | None = None, *overrides: Mapping[str, object] | None) -> Any:
    """Return a session for a job. A session that other code has started is used unchanged.

    A session of this module with other settings is stopped and replaced, because most settings apply only to
    a new session.
    """
    global _own_session  # noqa: PLW0603
    from pyspark.sql import SparkSession

    _forget_dead_java()
    wanted = chosen, settings = session_settings(master, *overrides)
    active = SparkSession.getActiveSession()
    if active is not None:
        if _own_session is None or _own_session == wanted:
            return active
        _check_idle(active)
        close_session()
    check_java()
    _choose_python(chosen)
    _choose_driver_python()
    # The setting applies to other processes; the driver reads this environment variable.
    timeout = settings.get(_SOCKET_TIMEOUT, "").removesuffix("s")
    if timeout.isdigit():
        os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", timeout)
    builder = SparkSession.builder.master(chosen).appName("penstock")
    daemon = WORKER_DAEMON if os.environ["PYSPARK_PYTHON"] == str(_FAST_PYTHON) else {}
    java = {_JAVA: _with_options_of_this_machine(settings[_JAVA])}
    for name, value in {**daemon, **settings, **java}.items():
        builder = builder.config(name, value)
    try:
        with filtered_stderr() as said, _signal_handlers_kept(), _with_secret(settings):
            session = builder.getOrCreate()
            keep_java_loss_quiet(session.sparkContext)
    except Exception as error:
        # Read now, because Java's messages are read from the Java process.
        text = cause_of(error)
        with suppress(Exception):
            _end_java()
        told = (line.partition("Exception: ")[2] for line in text.splitlines())
        reason = said.reason() or next((message for message in told if message), text)
        raise SettingError(
            f"Spark does not start with master {chosen!r} and these settings: {reason.strip()}"
        ) from error
    if _own_session is None:
        atexit.register(close_session)
    _own_session = wanted
    return session


@contextmanager
def _with_secret(settings: Mapping[str, str]) -> Iterator[None]:
    """Set a secret in the environment of Java if Spark creates none and the caller has set none.

    Only the same user can read the environment of a process, but every user its command line.
    """
    if settings.get(SECRET_SETTING) != NO_SECRET or SECRET in os.environ:
        yield
        return
    os.environ[SECRET] = token_hex(32)
    try:
        yield
    finally:
        del os.environ[SECRET]


def _with_options_of_this_machine(settings: str) -> str:
    """Return Java options, preceded by those for all drivers on this machine. The last of a kind applies."""
    # Java cannot write an archive while it uses another one.
    archive = [] if "-XX:ArchiveClassesAtExit=" in settings else archive_options()
    return f"{shlex.join([*archive, *java_options()])} {settings}"


def _choose_python(master: str) -> None:
    """Set the Python of the workers, unless the user has set it."""
    if os.environ.get("PYSPARK_PYTHON", str(_FAST_PYTHON)) not in (str(_FAST_PYTHON), sys.executable):
        return
    import py4j
    import pyspark

    # On other machines, or without an installed PySpark, use Spark's own search for PySpark.
    installed = all(Path(str(module.__file__)).is_file() for module in (py4j, pyspark))
    # Executors of supervisors have the same Penstock at the same path.
    near = is_local(master) or master == EXTERNAL_EXECUTORS
    quick = near and installed and os.access(_FAST_PYTHON, os.X_OK)
    os.environ["PENSTOCK_WORKER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = str(_FAST_PYTHON) if quick else sys.executable


def _choose_driver_python() -> None:
    """Set the Python that Java starts on this machine for Python data sources, unless the user has set it.

    The Python of the workers may exist only on other machines.
    """
    quick = os.environ["PYSPARK_PYTHON"] == str(_FAST_PYTHON)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", str(_FAST_PYTHON) if quick else sys.executable)


def _check_idle(session: Any) -> None:
    """Raise SettingError if jobs run in a session that is to be replaced."""
    running = len(session.streams.active)
    if running:
        raise SettingError(
            "the Spark session of this program has other settings, and replacing it would end what runs in it"
            f" ({running} job{'s' if running != 1 else ''}): stop that first, or use the same settings"
        )


def close_session(patience: float = _EXIT_SECONDS) -> None:
    """Stop the session that this module has started, if any, and its Java process.

    Java is killed if it has not exited after ``patience`` seconds.
    """
    global _own_session  # noqa: PLW0603
    if _own_session is None:
        return
    _own_session = None
    from pyspark.sql import SparkSession

    with suppress(Exception):  # Java may have died before.
        active = SparkSession.getActiveSession()
        if active is not None:
            active.stop()
    _end_java(patience)


def is_open() -> bool:
    """Return whether a session of this module is open."""
    return _own_session is not None


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Prevent PySpark from handling Ctrl-C: it would cancel running jobs."""
    install = signal.signal

    def install_others(number: int, handler: Any) -> Any:
        # Java is started with Ctrl-C ignored, and must continue to ignore it.
        taken_over = number == signal.SIGINT and handler is not signal.SIG_IGN
        return signal.getsignal(number) if taken_over else install(number, handler)

    signal.signal = install_others  # type: ignore[assignment]
    try:
        yield
    finally:
        signal.signal = install


def _end_java(patience: float = _EXIT_SECONDS) -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        process = getattr(gateway, "proc", None)
        with suppress(Exception):
            gateway.shutdown()
        _forget_session()
        if process is not None:
            # Java exits when its standard input closes.
            process.stdin.close()
            try:
                process.wait(timeout=patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _forget_dead_java() -> None:
    """Allow a new session after Java has died: PySpark itself would keep calling the dead process."""
    global _own_session  # noqa: PLW0603
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    if process.poll() is None:
        if is_java_answering(gateway):
            return
        process.kill()
        process.wait()
    _own_session = None
    _forget_session()


def _forget_session() -> None:
    """Make PySpark forget a session whose Java has ended, even if its start was not complete."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
