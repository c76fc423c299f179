"""A worker without Spark, for tests: ``python -m penstock.testing.local_engine_worker FOLDER``.

It is the worker of :mod:`penstock.worker.worker_main` in everything but the engine. A supervisor starts it
only when test code has made the supervisor so: no option, no setting and no document of a job selects it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from penstock.daemon.worker_folder import WorkerConfig
from penstock.engine.driver.job_handle import Handle
from penstock.engine.driver.job_start import start_job
from penstock.graph.job import Job
from penstock.keyring import Keyring
from penstock.replicas.agreement.agreement_protocol import ReplicaSpec
from penstock.testing.local_engine import LocalRuntime
from penstock.worker.worker_main import exit_worker, main


class LocalEngine:
    """Runs the job of a worker in the worker's own process."""

    driver_url = ""

    def __init__(self, instance: WorkerConfig, ring: Keyring, scratch: Path) -> None:  # noqa: ARG002
        self.app_id = f"local-{instance.job}-{instance.revision}-{instance.attempt}"
        self._cores = instance.assignment.settings.resources.cores
        self._scratch = scratch

    def open(self, job: Job) -> None:  # noqa: ARG002
        """Make a folder for what is on its way; there is nothing else to start."""
        self._scratch.mkdir(mode=0o700, exist_ok=True)

    def wait_for_executors(self, timeout: float, look: Callable[[], bool]) -> bool:  # noqa: ARG002
        """Wait for nobody: all tasks run here."""
        return True

    def warm_up(self, job: Job) -> bool:  # noqa: ARG002
        """Rehearse nothing: there is nothing to load."""
        return True

    def answers(self) -> bool:
        """Say that the engine is as alive as the process is."""
        return True

    def start(self, job: Job, folder: Path, replica_spec: ReplicaSpec | None) -> Handle:
        """Start the job in a folder that this worker has taken over."""
        return start_job(
            job, lambda: LocalRuntime(self._cores), folder=folder, taken=True, replica_spec=replica_spec
        )


if __name__ == "__main__":
    exit_worker(main(sys.argv[1:], engine_of=LocalEngine))
