"""The Spark session of this process: started when first needed, shared by all jobs that can share it."""

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

_QUICK = Path(__file__).with_name("worker_python.sh")
"""Starts Python for a worker, most of a second sooner than Spark would."""
WORKER_DAEMON = {"spark.python.daemon.module": "penstock.spark.python_worker_daemon"}
"""Has Spark's workers start with all they need; for workers with the same Penstock at the same place."""

SECRET = "_SPARK_AUTH_SECRET"  # noqa: S105 - the name of a variable
"""The variable in which Spark looks for its secret."""
_JAVA = "spark.driver.extraJavaOptions"
_SOCKET_TIMEOUT = "spark.python.authenticate.socketTimeout"
_PATIENCE = 10.0
"""Seconds that Java has to end."""

_ours: tuple[str, dict[str, str]] | None = None
"""Master and settings of the session that this module has started."""


def open_session(master: str | None = None, *overrides: Mapping[str, object] | None) -> Any:
    """Return a session for a job. A session that somebody else has started is used as it is.

    A session of ours whose settings differ is stopped and started anew, because most settings can
    only be given to a new one.
    """
    global _ours  # noqa: PLW0603
    from pyspark.sql import SparkSession

    _forget_dead_java()
    wanted = chosen, settings = session_settings(master, *overrides)
    active = SparkSession.getActiveSession()
    if active is not None:
        if _ours is None or _ours == wanted:
            return active
        _check_idle(active)
        close_session()
    check_java()
    _choose_python(chosen)
    _choose_driver_python()
    # The setting applies to other processes; the driver reads this variable.
    timeout = settings.get(_SOCKET_TIMEOUT, "").removesuffix("s")
    if timeout.isdigit():
        os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", timeout)
    builder = SparkSession.builder.master(chosen).appName("penstock")
    daemon = WORKER_DAEMON if os.environ["PYSPARK_PYTHON"] == str(_QUICK) else {}
    java = {_JAVA: _with_options_of_this_machine(settings[_JAVA])}
    for name, value in {**daemon, **settings, **java}.items():
        builder = builder.config(name, value)
    try:
        with filtered_stderr() as said, _signals_left_alone(), _with_secret(settings):
            session = builder.getOrCreate()
            keep_java_loss_quiet(session.sparkContext)
    except Exception as error:
        # Asked now: what an error of Java says is in Java.
        text = cause_of(error)
        with suppress(Exception):
            _end_java()
        told = (line.partition("Exception: ")[2] for line in text.splitlines())
        reason = said.reason() or next((message for message in told if message), text)
        raise SettingError(
            f"Spark does not start with master {chosen!r} and these settings: {reason.strip()}"
        ) from error
    if _ours is None:
        atexit.register(close_session)
    _ours = wanted
    return session


@contextmanager
def _with_secret(settings: Mapping[str, str]) -> Iterator[None]:
    """Have a secret in the environment of Java where Spark does not make one, unless the caller has set one.

    The environment of a process can be read by its own user alone; its command line by everybody.
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
    """Return options for Java with those that any driver here gets. Of contradicting ones the last counts."""
    # Java refuses to write an archive while it uses another one.
    archive = [] if "-XX:ArchiveClassesAtExit=" in settings else archive_options()
    return f"{shlex.join([*archive, *java_options()])} {settings}"


def _choose_python(master: str) -> None:
    """Say which Python the workers run, unless the user has."""
    if os.environ.get("PYSPARK_PYTHON", str(_QUICK)) not in (str(_QUICK), sys.executable):
        return
    import py4j
    import pyspark

    # Elsewhere than on this machine, and where it is not installed, Spark knows best where PySpark is.
    installed = all(Path(str(module.__file__)).is_file() for module in (py4j, pyspark))
    # Executors that supervisors start have the same Penstock at the same place.
    near = is_local(master) or master == EXTERNAL_EXECUTORS
    quick = near and installed and os.access(_QUICK, os.X_OK)
    os.environ["PENSTOCK_WORKER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = str(_QUICK) if quick else sys.executable


def _choose_driver_python() -> None:
    """Say which Python Java starts on this machine, to look for data sources in Python, unless the user has.

    That of the workers may exist on other machines only.
    """
    quick = os.environ["PYSPARK_PYTHON"] == str(_QUICK)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", str(_QUICK) if quick else sys.executable)


def _check_idle(session: Any) -> None:
    """Refuse to end a session in which jobs run."""
    running = len(session.streams.active)
    if running:
        raise SettingError(
            "the Spark session of this program has other settings, and a new one would end what runs in it"
            f" ({running} job{'s' if running != 1 else ''}): stop that first, or give the same settings"
        )


def close_session(patience: float = _PATIENCE) -> None:
    """Stop the session that this module has started, if any, and its Java process with it.

    Java is killed when it has not ended after ``patience`` seconds.
    """
    global _ours  # noqa: PLW0603
    if _ours is None:
        return
    _ours = None
    from pyspark.sql import SparkSession

    with suppress(Exception):  # Java may have died before.
        active = SparkSession.getActiveSession()
        if active is not None:
            active.stop()
    _end_java(patience)


def is_open() -> bool:
    """Whether this module has started a session and not closed it."""
    return _ours is not None


@contextmanager
def _signals_left_alone() -> Iterator[None]:
    """Keep PySpark from taking Ctrl-C over: it would cancel what runs, and that is not for it to decide."""
    install = signal.signal

    def install_others(number: int, handler: Any) -> Any:
        # Java, which is started with Ctrl-C ignored, shall go on to ignore it.
        taken_over = number == signal.SIGINT and handler is not signal.SIG_IGN
        return signal.getsignal(number) if taken_over else install(number, handler)

    signal.signal = install_others  # type: ignore[assignment]
    try:
        yield
    finally:
        signal.signal = install


def _end_java(patience: float = _PATIENCE) -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        process = getattr(gateway, "proc", None)
        with suppress(Exception):
            gateway.shutdown()
        _forget_session()
        if process is not None:
            # Java ends when its standard input closes.
            process.stdin.close()
            try:
                process.wait(timeout=patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _forget_dead_java() -> None:
    """Let a new session start after Java has died: PySpark itself would go on asking the dead one."""
    global _ours  # noqa: PLW0603
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
    _ours = None
    _forget_session()


def _forget_session() -> None:
    """Have PySpark forget a session whose Java is gone, however far its start had come."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
