"""The Spark settings that Penstock starts with, each with its reason. A job or a user may override any."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import SettingError
from penstock.graph.job import Job

DEFAULT_MASTER = "local[*]"
EXTERNAL_EXECUTORS = "local-cluster[0,1,1024]"
"""A driver with no executors of its own, which takes all that report to it."""

_LOGGING = Path(__file__).with_name("log4j2.properties")

DEFAULTS: dict[str, str] = {
    # Nothing listens beyond this machine unless it is told to.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.pyspark.python": sys.executable,
    "spark.pyspark.driver.python": sys.executable,
    # The default of 15 seconds is short on a busy machine. Java's wait for a worker process has no setting.
    "spark.python.authenticate.socketTimeout": "60s",
    # 40 ms a batch less than loopback sockets.
    "spark.python.unix.domain.socket.enabled": "true",
    # Without native Hadoop, Spark forks chmod for each checkpoint file: 109 ms each, 16 ms like this.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.extraJavaOptions": (
        "-Djdk.lang.Process.launchMechanism=VFORK"
        # A query stopped within a batch overflows the default stack inside a regular expression.
        " -Xss4m"
        f" -Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    ),
    "spark.driver.memory": "2g",
    # The ledger keeps what a restart needs; Spark's own history is only the way there.
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.streaming.metricsEnabled": "false",
    # Rows are parcels of many records, so a few of them make a batch.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.cleaner.periodicGC.interval": "5min",
    # A stream runs for months: what Spark remembers of past batches must not grow with them.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.log.structuredLogging.enabled": "false",
}


SECRET_SETTING = "spark.authenticate.secret"  # noqa: S105 - the name of a setting
NO_SECRET = "see the environment"  # noqa: S105 - never used as one
"""Spark wants the setting to be there, and then prefers what the environment says."""

_PROTECTION = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


_NO_REPETITION = {
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.speculation": "false",
}


_SPARKS_OWN = {"spark.task.maxFailures": "4", "spark.stage.maxConsecutiveAttempts": "4"}
"""What Spark does where a setting is left out."""


_REPETITION = {
    # Executors come, go and die without the task having any part in it.
    "spark.task.maxFailures": "16",
    "spark.stage.maxConsecutiveAttempts": "16",
}


_LOCAL = re.compile(r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?")
"""What Spark takes for a local master; anything else it refuses, or looks for a secret first."""
_LOCAL_REPETITION = re.compile(r"local\[\s*[^,\s]+\s*,\s*(\d+)\s*\]")


def settings_for(job: Job, master: str | None, *overrides: Mapping[str, object] | None) -> dict[str, str]:
    """Return the settings that a job needs of its session: at most once, Spark must not repeat a task either.

    ``overrides`` are the settings that the session gets beside these. Raises SettingError when they, or the
    master that one of them may name, have Spark repeat tasks nevertheless. A local master repeats none of its
    own accord, and one that is told to heeds no setting.
    """
    if job.guarantee == "at-most-once":
        chosen, settings = session_settings(master, *overrides)
        check_repetition(job, chosen, settings)
        if not is_local(chosen):
            return dict(_NO_REPETITION)
    return dict(_REPETITION) if master == EXTERNAL_EXECUTORS else {}


def check_repetition(job: Job, master: str, settings: Mapping[str, str]) -> None:
    """Raise SettingError when Spark would repeat tasks of a job that must not process a record twice."""
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
            reason = f"{name}={given} has Spark repeat tasks: it must be {value}. Leave the setting out"
            break
    if reason:
        raise SettingError(f"job {job.name!r} is to process each record at most once, and {reason}")


def check_session(job: Job, master: str, settings: Mapping[str, str]) -> None:
    """Raise SettingError when a session that somebody else has started repeats tasks that must not be."""
    unless_said = {} if is_local(master) else _SPARKS_OWN
    check_repetition(job, master, {**unless_said, **settings})


def protection(master: str) -> dict[str, str]:
    """Return the settings that keep strangers out of a session with a master of Penstock's own.

    Even a Spark that is all in one process listens, and runs what it is sent. A local master makes a secret
    for itself. What a cluster of the user's own asks for is known to the user alone.

    >>> protection("local[2]")["spark.authenticate"], protection("spark://host:7077")
    ('true', {})
    """
    if is_local(master):
        return dict(_PROTECTION)
    if master.startswith("local-cluster["):
        return {**_PROTECTION, SECRET_SETTING: NO_SECRET}
    return {}


def is_local(master: str) -> bool:
    """Whether all of Spark is in one process.

    >>> is_local("local[2]"), is_local("spark://host:7077"), is_local("local[x]")
    (True, False, False)
    """
    return _LOCAL.fullmatch(master) is not None


def merged(*overrides: Mapping[str, object] | None) -> dict[str, str]:
    """Return the defaults with overrides applied, the last one winning; a JVM option is added to ours."""
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
    """Return the master and all settings of a session. What overrides say wins, of protection as well."""
    settings = merged(*overrides)
    chosen = master or settings.get("spark.master") or DEFAULT_MASTER
    return chosen, {**protection(chosen), **settings}


def read_conf(assignments: list[str]) -> dict[str, str]:
    """Read ``name=value`` words as given on a command line.

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
