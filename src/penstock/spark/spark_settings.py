"""Penstock's default Spark settings, each with its reason. A job or a user may override any of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import SettingError
from penstock.graph.job import Job

DEFAULT_MASTER = "local[*]"
EXTERNAL_EXECUTORS = "local-cluster[0,1,1024]"
"""The master of a driver that has no executors of its own and accepts all that register."""

_LOGGING = Path(__file__).with_name("log4j2.properties")

DEFAULTS: dict[str, str] = {
    # Listen only on this machine unless configured otherwise.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.pyspark.python": sys.executable,
    "spark.pyspark.driver.python": sys.executable,
    # The default of 15 seconds is too short on a busy machine. Java's own timeout has no setting.
    "spark.python.authenticate.socketTimeout": "60s",
    # Saves 40 ms a batch compared with loopback sockets.
    "spark.python.unix.domain.socket.enabled": "true",
    # Without native Hadoop, Spark forks chmod for each checkpoint file: 109 ms each, 16 ms with this option.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.extraJavaOptions": (
        "-Djdk.lang.Process.launchMechanism=VFORK"
        # Stopping a query within a batch overflows the default stack in a regular expression.
        " -Xss4m"
        f" -Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    ),
    "spark.driver.memory": "2g",
    # The ledger holds what a restart needs, so Spark's own history can be short.
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.streaming.metricsEnabled": "false",
    # Rows are parcels of many records, so Arrow batches may have few rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.cleaner.periodicGC.interval": "5min",
    # A stream runs for months: Spark's memory of past batches must be bounded.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.log.structuredLogging.enabled": "false",
}


SECRET_SETTING = "spark.authenticate.secret"  # noqa: S105 - the name of a setting
NO_SECRET = "see the environment"  # noqa: S105 - never used as one
"""Spark requires the setting, and then prefers the value in the environment."""

_PROTECTION = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


_NO_REPETITION = {
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.speculation": "false",
}


_SPARK_DEFAULTS = {"spark.task.maxFailures": "4", "spark.stage.maxConsecutiveAttempts": "4"}
"""Spark's default values."""


_REPETITION = {
    # Executors are added, removed and lost without any fault of the task.
    "spark.task.maxFailures": "16",
    "spark.stage.maxConsecutiveAttempts": "16",
}


_LOCAL = re.compile(r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?")
"""Matches Spark's local masters; Spark rejects other values, or requires a secret."""
_LOCAL_REPETITION = re.compile(r"local\[\s*[^,\s]+\s*,\s*(\d+)\s*\]")


def settings_for(job: Job, master: str | None, *overrides: Mapping[str, object] | None) -> dict[str, str]:
    """Return the settings that a job needs of its session: at most once, Spark must not repeat tasks.

    ``overrides`` are further settings of the session. Raises SettingError if they, or a master named in them,
    make Spark repeat tasks. A local master repeats tasks only if its URL says so, whatever the settings.
    """
    if job.guarantee == "at-most-once":
        chosen, settings = session_settings(master, *overrides)
        check_repetition(job, chosen, settings)
        if not is_local(chosen):
            return dict(_NO_REPETITION)
    return dict(_REPETITION) if master == EXTERNAL_EXECUTORS else {}


def check_repetition(job: Job, master: str, settings: Mapping[str, str]) -> None:
    """Raise SettingError if Spark would repeat tasks of a job that must not process a record twice."""
    if job.guarantee != "at-most-once":
        return
    reason = ""
    told = _LOCAL_REPETITION.fullmatch(master)
    if told is not None and int(told[1]) != 1:
        reason = (
            f"with the master {master} Spark tries a task up to {told[1]} times: leave the second number out"
        )
    for name, value in _NO_REPETITION.items():
        given = settings.get(name, value)
        if given.strip().lower() != value:
            reason = f"{name}={given} makes Spark repeat tasks: it must be {value}. Remove the setting"
            break
    if reason:
        raise SettingError(f"job {job.name!r} is to process each record at most once, and {reason}")


def check_session(job: Job, master: str, settings: Mapping[str, str]) -> None:
    """Raise SettingError if a session started by other code would repeat tasks of an at-most-once job."""
    unless_said = {} if is_local(master) else _SPARK_DEFAULTS
    check_repetition(job, master, {**unless_said, **settings})


def protection(master: str) -> dict[str, str]:
    """Return the settings that protect a session with a master of Penstock from other users.

    Even Spark in a single process listens on ports and runs code that it receives. A local master creates its
    own secret. The settings for a Spark cluster of the user must come from the user.

    >>> protection("local[2]")["spark.authenticate"], protection("spark://host:7077")
    ('true', {})
    """
    if is_local(master):
        return dict(_PROTECTION)
    if master.startswith("local-cluster["):
        return {**_PROTECTION, SECRET_SETTING: NO_SECRET}
    return {}


def is_local(master: str) -> bool:
    """Return whether a master runs all of Spark in one process.

    >>> is_local("local[2]"), is_local("spark://host:7077"), is_local("local[x]")
    (True, False, False)
    """
    return _LOCAL.fullmatch(master) is not None


def merged(*overrides: Mapping[str, object] | None) -> dict[str, str]:
    """Return the defaults with overrides, of which the last applies; JVM options are appended."""
    settings = dict(DEFAULTS)
    for override in overrides:
        for name, value in (override or {}).items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if name == "spark.driver.extraJavaOptions":
                text = f"{DEFAULTS[name]} {text}"
            settings[name] = text
    return settings


def session_settings(
    master: str | None, *overrides: Mapping[str, object] | None
) -> tuple[str, dict[str, str]]:
    """Return the master and all settings of a session. Overrides also apply to the settings of protection."""
    settings = merged(*overrides)
    chosen = master or settings.get("spark.master") or DEFAULT_MASTER
    return chosen, {**protection(chosen), **settings}


def read_conf(assignments: list[str]) -> dict[str, str]:
    """Parse ``name=value`` arguments of a command line.

    >>> read_conf(["spark.driver.memory=4g"])
    {'spark.driver.memory': '4g'}
    """
    settings = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.startswith("spark."):
            raise SettingError(f"--conf takes spark.NAME=VALUE, not {assignment!r}")
        settings[name] = value
    return settings
