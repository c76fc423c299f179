"""``penstock master``: run a master, which decides where jobs run."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from penstock.cli.command_options import (
    ClusterFolder,
    Host,
    Port,
    RetainDays,
    RetainJobs,
    StoreAddress,
    StoreRoot,
    StoreWait,
)
from penstock.cli.daemon_process import (
    block_rich_import,
    check_address,
    check_name,
    daemon_errors,
    lock_folder,
    open_store,
    stop_on_signals,
)
from penstock.keyring import open_keyring
from penstock.local.cluster_layout import PORT, ROOT
from penstock.local.local_cluster import cluster_folder as own_folder


@daemon_errors
def master(
    name: Annotated[str, typer.Option("--name", help="Name of the master, unique in the cluster.")],
    connect: StoreAddress,
    host: Host = "127.0.0.1",
    port: Port = PORT,
    root: StoreRoot = ROOT,
    cluster_folder: ClusterFolder = None,
    wait: StoreWait = 60.0,
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            metavar="NAME|MODULE:CLASS",
            help="The placement strategy of jobs that do not name one.",
        ),
    ] = "balanced",
    retain_days: RetainDays = 7.0,
    retain_jobs: RetainJobs = 1000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", help="Another Host that requests may name, such as a proxy's; repeatable."
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option("--allow-origin", help="An Origin whose pages may send requests; repeatable."),
    ] = None,
) -> None:
    """Run a master until SIGTERM or Ctrl-C.

    Any number may run; one leads. Exit codes: 0 stopped on request, 1 a resource was unavailable (a port,
    ZooKeeper), 3 wrong configuration (the key, an option).
    """
    block_rich_import()
    from penstock import __version__
    from penstock.bundles.bundle_cache import BundleCache
    from penstock.bundles.bundle_store import BundleStore
    from penstock.cluster.job_retention import Retention
    from penstock.cluster.node_documents import MasterInfo
    from penstock.keyring import signing_key
    from penstock.master.bundle_intake import BundleIntake
    from penstock.master.cluster_service import ClusterService
    from penstock.master.master import Master, MasterSettings
    from penstock.master.strategy_runner import StrategyChooser
    from penstock.process_logs import process_log
    from penstock.web.cluster_logs import ClusterLogs
    from penstock.web.http_server import serve
    from penstock.web.master_api import make_master_api
    from penstock.web.supervisor_client import SupervisorClient

    check_name(name)
    cluster = cluster_folder or own_folder()
    folder = cluster / "masters" / name
    keyring = open_keyring(cluster)
    check_address(host, port)
    with lock_folder(folder, f"master {name}"):
        process_log.configure("master", file=folder / "log.jsonl", node=name, stderr=True)
        for secret in keyring.secrets:
            process_log.register_secret(secret)
        store = open_store(connect, keyring, root, wait)
        try:
            info = MasterInfo(name, f"http://{host}:{port}", os.getpid(), time.time(), __version__)
            with SupervisorClient(keyring.node_token) as agents:
                bundles = BundleStore(store, signing_key(keyring.token), agents)
                code = BundleCache(bundles, folder / "bundles")
                retention = Retention(retain_days * 86400.0, retain_jobs)
                daemon = Master(
                    store,
                    info,
                    settings=MasterSettings(retention=retention),
                    strategies=StrategyChooser(strategy, code),
                    monotonic=time.monotonic,
                )
                stop = stop_on_signals(daemon.wake)
                kept = BundleIntake(bundles, daemon.guard, time.time)
                logged = ClusterLogs(agents, lambda: sorted(cluster.glob("masters/*/log.jsonl")))
                service = ClusterService(daemon, kept, logged)
                app = make_master_api(
                    service,
                    keyring.token,
                    hosts=[host, "localhost", *(allow_host or [])],
                    origins=allow_origin or [],
                )
                with serve(app, host, port):
                    daemon.run(stop)
        finally:
            store.close()
