"""The process that ``penstock supervisor`` becomes once its options are read. It stays small."""

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

from penstock.cli.daemon import (
    block_rich_import,
    check_address,
    daemon_errors,
    lock_folder,
    open_store,
    stop_on_signals,
)
from penstock.cluster.documents import NodeInfo
from penstock.keyring import open_keyring, signing_key

if TYPE_CHECKING:
    from penstock.daemons.supervisor import SupervisorSettings


@dataclass(frozen=True)
class SupervisorOptions:
    """What a supervisor is told beside what its node is."""

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
    """Supervise a node until told to stop.

    Tests may have it start workers without Spark, and be less patient with them.
    """
    block_rich_import()
    from penstock import logs
    from penstock.bundles.blobs import BlobStore
    from penstock.bundles.storing import BundleStore
    from penstock.daemons.code import BundleCache
    from penstock.daemons.housekeeping import JobCleanup
    from penstock.daemons.instances import WORKER_MODULE, FolderInstances, NodeSettings
    from penstock.daemons.machine import MachineSampler
    from penstock.daemons.output_limits import read_output_limits
    from penstock.daemons.processes_os import OsProcesses
    from penstock.daemons.registration import is_dead, registration_of
    from penstock.daemons.storage_marker import claim_storage
    from penstock.daemons.supervisor import Supervisor
    from penstock.snapshots.store import SnapshotStore
    from penstock.web.agent import make_supervisor_api
    from penstock.web.agent_client import SupervisorClient
    from penstock.web.serving import serve

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
        logs.configure("supervisor", file=log, node=info.name, stderr=True)
        for secret in keyring.secrets:
            logs.register_secret(secret)
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
                told = threading.Event()
                cleaning = JobCleanup(
                    store,
                    folder,
                    storage,
                    instances=instances,
                    blobs=blobs,
                    snapshots=snapshots,
                    wake=told.set,
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
                with serve(agent, info.host, options.port), _keeping_clean(cleaning.step, told):
                    daemon.run(stop)
        finally:
            store.close()


@contextmanager
def _keeping_clean(step: Callable[[float], None], wake: threading.Event) -> Iterator[None]:
    """Have files of forgotten jobs removed, in a thread: large folders take their time."""
    from penstock.daemons.housekeeping import CLEANUP_SECONDS
    from penstock.daemons.stepping import run_step_loop

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
    """Read what the command was told, and run."""
    content = json.loads(sys.argv[1])
    run(NodeInfo(**content["info"]), SupervisorOptions(**content["options"]))


if __name__ == "__main__":
    main()
