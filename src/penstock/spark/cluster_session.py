"""The Spark session of a worker: in one process, with executors on nodes, or on a user's Spark cluster."""

from __future__ import annotations

import os
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_bytes
from typing import Any

from penstock.graph.job import Job
from penstock.spark.spark_session import SECRET, WORKER_DAEMON, open_session
from penstock.spark.spark_settings import EXTERNAL_EXECUTORS, protection, settings_for

_FILTER = "org.apache.spark.ui.JWSFilter"
_PAUSE = 0.05


@dataclass(frozen=True)
class DriverOptions:
    """The options of a worker's session."""

    host: str
    cores: int
    memory: int
    """The size of Java's heap in bytes."""
    executor_cores: int = 0
    """The number of cores of all executors together; 0 without executors."""
    spark_master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def master(self) -> str:
        """The URL of the Spark master."""
        return self.spark_master or (EXTERNAL_EXECUTORS if self.executor_cores else f"local[{self.cores}]")

    @property
    def settings(self) -> dict[str, str]:
        """The settings in addition to Penstock's defaults. Users cannot override those of security."""
        settings = {
            **self.conf,
            "spark.driver.host": self.host,
            "spark.driver.bindAddress": self.host,
            "spark.driver.memory": f"{max(self.memory >> 20, 512)}m",
            "spark.ui.enabled": "false",
        }
        if self.spark_master is None:
            settings |= protection(self.master)
            settings = {**WORKER_DAEMON, **settings}
        if self.master == EXTERNAL_EXECUTORS:
            settings |= {
                # Such a driver serves a web page about its executors; access to it is denied.
                "spark.ui.filters": _FILTER,
                "spark.ui.killEnabled": "false",
                "spark.master.ui.decommission.allow.mode": "DENY",
                "spark.master.rest.enabled": "false",
                # A drained executor moves its shuffle blocks to others before it exits.
                "spark.decommission.enabled": "true",
                "spark.storage.decommission.enabled": "true",
                "spark.storage.decommission.shuffleBlocks.enabled": "true",
                "spark.default.parallelism": str(self.executor_cores),
            }
            # The timeout for a hanging executor; a dead one is detected at once.
            settings.setdefault("spark.network.timeout", "30s")
            settings.setdefault("spark.network.timeoutInterval", "15s")
            settings.setdefault("spark.shuffle.io.retryWait", "500ms")
            settings.setdefault("spark.executor.heartbeatInterval", "5s")
        return settings


@dataclass(frozen=True)
class Driver:
    """A running session."""

    session: Any
    url: str
    """The address at which executors register; empty without executors."""
    app_id: str

    def answers(self) -> bool:
        """Return whether Java responds and its Spark context is active."""
        try:
            return not self.session.sparkContext._jsc.sc().isStopped()
        except Exception:
            return False

    def executors(self) -> int:
        """Return the number of registered executors."""
        known = self.session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
        return len(known) - 1  # The list includes the driver.

    def wait_for_executors(self, timeout: float, look: Callable[[], bool]) -> bool:
        """Wait until an executor has registered or ``look`` returns false; return whether one has."""
        deadline = time.monotonic() + timeout
        while self.executors() < 1:
            if time.monotonic() >= deadline or not look():
                return False
            time.sleep(_PAUSE)
        return True


def open_driver(job: Job, options: DriverOptions, scratch: Path, secret: str) -> Driver:
    """Start the session of a worker, or return the running one."""
    master = options.master
    own = master == EXTERNAL_EXECUTORS
    for name in ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"):
        # Other parts of Spark that need an address use the node's.
        os.environ[name] = options.host
    os.environ["SPARK_LOCAL_DIRS"] = str(scratch)
    if own:
        _lock_pages(scratch)
    with _secret(secret if own else None):
        needed = settings_for(job, master, job.spark, options.settings)
        session = open_session(master, needed, job.spark, options.settings)
    context = session.sparkContext
    port = context.getConf().get("spark.driver.port")
    url = f"spark://CoarseGrainedScheduler@{options.host}:{port}" if own else ""
    return Driver(session, url, str(context.applicationId))


def _lock_pages(scratch: Path) -> None:
    """Protect Spark's web pages with a random key, in a file so that no command line shows it."""
    folder = scratch / "conf"
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder / "spark-defaults.conf", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"spark.{_FILTER}.param.secretKey {urlsafe_b64encode(token_bytes(64)).decode()}\n")
    os.environ["SPARK_CONF_DIR"] = str(folder)


@contextmanager
def _secret(secret: str | None) -> Iterator[None]:
    """Set the secret in the environment while Java is started, instead of on its command line."""
    if secret is None:
        yield
        return
    os.environ[SECRET] = secret
    try:
        yield
    finally:
        del os.environ[SECRET]
