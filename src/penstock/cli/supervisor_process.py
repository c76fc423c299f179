"""The process of a supervisor: ``penstock supervisor`` replaces itself with it to save memory."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.daemon_process import (
    block_rich_import,
    check_address,
    daemon_errors,
    lock_folder,
    open_store,
    stop_on_signals,
)
from penstock.cluster.node_documents import NodeInfo
from penstock.keyring import open_keyring, signing_key

if TYPE_CHECKING:
    from penstock.supervisor.supervisor import SupervisorSettings


@dataclass(frozen=True)
class SupervisorOptions:
    """The options of a supervisor other than the description of its node."""

    port: int
    cluster_folder: str
    storage: str
    connect: str
    root: str
    wait: float


@daemon_errors
def run(
    info: NodeInfo,
    options: SupervisorOptions,
    *,
    worker_module: str | None = None,
    settings: SupervisorSettings | None = None,
) -> None:
    """Run the supervisor of a node until it is stopped.

    With ``worker_module`` and ``settings``, tests run workers without Spark and with shorter time limits.
    """
    block_rich_import()
    from penstock.backups.snapshots.snapshot_store import SnapshotStore
    from penstock.bundles.blob_store import BlobStore
    from penstock.bundles.bundle_cache import BundleCache
    from penstock.bundles.bundle_store import BundleStore
    from penstock.process_logs import process_log
    from penstock.process_logs.user_output import read_output_limits
    from penstock.processes.process_control import OsProcesses
    from penstock.supervisor.job_cleanup import JobCleanup
    from penstock.supervisor.machine_load import MachineSampler
    from penstock.supervisor.node_instances import WORKER_MODULE, FolderInstances, NodeSettings
    from penstock.supervisor.node_registration import is_dead, registration_of
    from penstock.supervisor.storage_marker import claim_storage
    from penstock.supervisor.supervisor import Supervisor
    from penstock.web.http_server import serve
    from penstock.web.supervisor_api import make_supervisor_api
    from penstock.web.supervisor_client import SupervisorClient

    cluster, storage = Path(options.cluster_folder), Path(options.storage)
    folder = cluster / "nodes" / info.name
    node = NodeSettings(
        info.name,
        info.host,
        folder,
        storage,
        cluster,
        options.connect,
        options.root,
        read_output_limits(os.environ),
    )
    keyring = open_keyring(cluster)
    check_address(info.host, options.port)
    with lock_folder(folder, f"the supervisor of {info.name}"):
        log = folder / "log.jsonl"
        process_log.configure("supervisor", file=log, node=info.name, stderr=True)
        for secret in keyring.secrets:
            process_log.register_secret(secret)
        store = open_store(options.connect, keyring, options.root, options.wait)
        try:
            with SupervisorClient(keyring.node_token) as agents:
                bundles = BundleStore(store, signing_key(keyring.token), agents)
                unpacked = BundleCache(bundles, folder / "bundles", lambda: instances.bundles())  # noqa: PLW0108
                instances = FolderInstances(
                    node, OsProcesses(), keyring, unpacked, worker_module=worker_module or WORKER_MODULE
                )
                daemon = Supervisor(
                    store,
                    registration_of(info),
                    instances,
                    MachineSampler(folder),
                    settings=settings,
                    monotonic=time.monotonic,
                    is_dead=lambda other: is_dead(other, info),
                    admit=lambda cluster: claim_storage(storage, cluster),
                )
                snapshots = SnapshotStore(folder / "snapshots")
                snapshots.tidy()
                blobs = BlobStore(folder / "blobs")
                wake_cleanup = threading.Event()
                cleaning = JobCleanup(
                    store,
                    folder,
                    storage,
                    instances=instances,
                    blobs=blobs,
                    snapshots=snapshots,
                    wake=wake_cleanup.set,
                )
                agent = make_supervisor_api(
                    blobs,
                    lambda: [log, *instances.log_files()],
                    keyring.node_token,
                    info.name,
                    hosts=[info.host],
                    snapshots=snapshots,
                )
                stop = stop_on_signals()
                with serve(agent, info.host, options.port), _cleanup_thread(cleaning.step, wake_cleanup):
                    daemon.run(stop)
        finally:
            store.close()


@contextmanager
def _cleanup_thread(step: Callable[[float], None], wake: threading.Event) -> Iterator[None]:
    """Remove files of forgotten jobs in a thread, because deleting large folders takes long."""
    from penstock.daemon.step_loop import run_step_loop
    from penstock.supervisor.job_cleanup import CLEANUP_SECONDS

    stop = threading.Event()
    thread = threading.Thread(
        target=run_step_loop,
        args=(step,),
        kwargs={"wake": wake, "stop": stop, "tick": CLEANUP_SECONDS, "clock": time.time},
        name="housekeeping",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        wake.set()


def main() -> None:
    """Read the options that ``penstock supervisor`` has passed, and run the supervisor."""
    content = json.loads(sys.argv[1])
    run(NodeInfo(**content["info"]), SupervisorOptions(**content["options"]))


if __name__ == "__main__":
    main()
