"""The engine of a worker: the protocol, and its implementation with Spark."""

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

_WARM_UP_SECONDS = 30.0


class WorkerEngine(Protocol):
    """Runs the job of one worker."""

    @property
    def driver_url(self) -> str:
        """The URL at which executors register; empty if supervisors start no executors for the job."""

    @property
    def app_id(self) -> str:
        """The application id of this worker's engine."""

    def open(self, job: Job) -> None:
        """Start the engine, which may take long."""

    def wait_for_executors(self, timeout: float, look: Callable[[], bool]) -> bool:
        """Wait until an executor has registered, or ``look`` returns false; return whether one has."""

    def warm_up(self, job: Job) -> bool:
        """Run a job without effects, so that the first batch is fast; return whether it ended in time."""

    def answers(self) -> bool:
        """Return whether the engine is alive."""

    def start(self, job: Job, folder: Path, replica_spec: ReplicaSpec | None) -> Handle:
        """Start the job in a folder that this worker has taken over."""


EngineOf = Callable[[WorkerConfig, Keyring, Path], WorkerEngine]
"""Creates the engine of a worker, with a folder for its temporary files."""


class SparkEngine:
    """A Spark driver in this process, with or without executors that supervisors start."""

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
            timeout=_WARM_UP_SECONDS,
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
        assert self._driver is not None, "open() must be called first"
        return self._driver
