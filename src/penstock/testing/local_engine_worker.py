"""A worker without Spark, for tests: ``python -m penstock.testing.local_engine_worker FOLDER``.

Except for the engine it is the worker of :mod:`penstock.worker.worker_main`. Only a supervisor that test code
has configured starts it: no option, setting or document of a job selects it.
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
        """Create the folder for temporary files; there is nothing else to start."""
        self._scratch.mkdir(mode=0o700, exist_ok=True)

    def wait_for_executors(self, timeout: float, look: Callable[[], bool]) -> bool:  # noqa: ARG002
        """Return at once: all tasks run in this process."""
        return True

    def warm_up(self, job: Job) -> bool:  # noqa: ARG002
        """Return at once: there is nothing to load."""
        return True

    def answers(self) -> bool:
        """Return True: the engine is alive as long as the process."""
        return True

    def start(self, job: Job, folder: Path, replica_spec: ReplicaSpec | None) -> Handle:
        """Start the job in a folder that this worker has taken over."""
        return start_job(
            job, lambda: LocalRuntime(self._cores), folder=folder, taken=True, replica_spec=replica_spec
        )


if __name__ == "__main__":
    exit_worker(main(sys.argv[1:], engine_of=LocalEngine))
