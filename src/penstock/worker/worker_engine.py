"""The engine of a worker: Spark, and the protocol that a worker needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.daemon.worker_folder import WorkerConfig
from penstock.engine.driver.job_handle import Handle
from penstock.graph.job import Job
from penstock.keyring import Keyring
from penstock.replicas.agreement.agreement_protocol import ReplicaSpec

if TYPE_CHECKING:
    from penstock.spark.cluster_session import Driver

_REHEARSAL_SECONDS = 30.0


class WorkerEngine(Protocol):
    """Runs the job of one worker."""

    @property
    def driver_url(self) -> str:
        """Where executors report to; empty without executors of our own."""

    @property
    def app_id(self) -> str:
        """How the engine names the application of this worker."""

    def open(self, job: Job) -> None:
        """Start what takes time to start."""

    def wait_for_executors(self, timeout: float, look: Callable[[], bool]) -> bool:
        """Wait until an executor has reported, or until ``look`` says no; say whether one has."""

    def warm_up(self, job: Job) -> bool:
        """Run a job of no consequence, so that the first batch is not slow; say whether it ended in time."""

    def answers(self) -> bool:
        """Whether the engine is alive."""

    def start(self, job: Job, folder: Path, replica_spec: ReplicaSpec | None) -> Handle:
        """Start the job in a folder that this worker has taken over."""


EngineOf = Callable[[WorkerConfig, Keyring, Path], WorkerEngine]
"""Makes the engine of an instance, with a folder for what it needs on disk."""


class SparkEngine:
    """A Spark driver in this process, alone or with executors that supervisors start."""

    def __init__(self, instance: WorkerConfig, ring: Keyring, scratch: Path) -> None:
        from penstock.spark.cluster_session import DriverOptions

        assignment = instance.assignment
        self._options = DriverOptions(
            host=instance.host,
            cores=assignment.settings.resources.cores,
            memory=assignment.settings.resources.memory,
            executor_cores=sum(slot.cores for slot in assignment.executors),
            spark_master=assignment.settings.spark.master,
            conf=assignment.settings.spark.conf,
        )
        self._scratch = scratch
        self._secret = ring.spark_secret(instance.job, instance.revision, instance.attempt)
        self._driver: Driver | None = None

    @property
    def driver_url(self) -> str:
        return self._opened.url

    @property
    def app_id(self) -> str:
        return self._opened.app_id

    def open(self, job: Job) -> None:
        from penstock.spark.cluster_session import open_driver

        self._scratch.mkdir(mode=0o700, exist_ok=True)
        self._driver = open_driver(job, self._options, self._scratch, self._secret)

    def wait_for_executors(self, timeout: float, look: Callable[[], bool]) -> bool:
        return not self._opened.url or self._opened.wait_for_executors(timeout, look)

    def warm_up(self, job: Job) -> bool:
        from penstock.spark.warm_start import warm_up

        options = self._options
        return warm_up(
            job,
            master=options.master,
            conf=options.settings,
            folder=self._scratch,
            cores=options.executor_cores or options.cores,
            timeout=_REHEARSAL_SECONDS,
        )

    def answers(self) -> bool:
        return self._driver is None or self._driver.answers()

    def start(self, job: Job, folder: Path, replica_spec: ReplicaSpec | None) -> Handle:
        from penstock.spark.spark_runtime import start

        options = self._options
        return start(
            job,
            master=options.master,
            conf=options.settings,
            folder=folder,
            taken=True,
            replica_spec=replica_spec,
        )

    @property
    def _opened(self) -> Driver:
        assert self._driver is not None, "opened before"
        return self._driver
