"""``penstock supervisor``: one a node; runs there what is assigned to it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import psutil
import typer

from penstock.cli.daemon import (
    DEFAULT_ROOT,
    ClusterFolder,
    Connect,
    Host,
    Port,
    Root,
    Wait,
    alone,
    check_address,
    daemon_errors,
    open_store,
    spare_memory,
    stop_on_signals,
)
from penstock.cli.local_cluster import cluster_folder as own_folder
from penstock.cli.sizes import read_memory
from penstock.errors import SettingError
from penstock.keyring import open_keyring
from penstock.log import home

if TYPE_CHECKING:
    from penstock.cluster.documents import NodeInfo

_PORT = 7720


@daemon_errors
def supervisor(
    name: Annotated[str, typer.Option("--name", help="What the node is called; no other is.")],
    connect: Connect,
    host: Host = "127.0.0.1",
    port: Port = _PORT,
    cores: Annotated[
        int | None, typer.Option("--cores", help="Cores that workers may use; all by default.")
    ] = None,
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="Memory that workers may use; three quarters.")
    ] = "",
    rack: Annotated[str, typer.Option("--rack", help="Nodes of a rack may fail together.")] = "",
    labels: Annotated[
        str, typer.Option("--labels", metavar="NAME=VALUE,…", help="What jobs may ask for in a node.")
    ] = "",
    storage: Annotated[
        Path | None,
        typer.Option("--storage", metavar="DIR", help="Logs and jobs, shared by all nodes; $PENSTOCK_HOME."),
    ] = None,
    root: Root = DEFAULT_ROOT,
    cluster_folder: ClusterFolder = None,
    wait: Wait = 60.0,
) -> None:
    """Run the supervisor of a node until SIGTERM or Ctrl-C. Its workers run on, and the next one finds them.

    Exit codes: 0 stopped as asked, 1 something was not there (a free port, ZooKeeper), 3 something is
    wrong (the key, an option).
    """
    spare_memory()
    from penstock import __version__, logs
    from penstock.bundles.blobs import BlobFolder
    from penstock.bundles.storing import BundleStore
    from penstock.cluster.documents import NodeInfo
    from penstock.daemons.code import UnpackedBundles
    from penstock.daemons.instances import FolderInstances, Node
    from penstock.daemons.machine import Machine
    from penstock.daemons.processes_os import OsProcesses
    from penstock.daemons.supervisor import Supervisor
    from penstock.keyring import signing_key
    from penstock.web.agent import make_agent
    from penstock.web.agent_client import AgentClient
    from penstock.web.serving import serve

    cluster = cluster_folder or own_folder()
    folder = cluster / "nodes" / name
    node = Node(name, host, folder, (storage or home()).absolute(), cluster, connect, root)
    info = NodeInfo(
        name=name,
        host=host,
        cores=cores if cores is not None else os.cpu_count() or 1,
        memory=read_memory(memory) if memory else psutil.virtual_memory().total * 3 // 4,
        rack=rack,
        labels=read_labels(labels),
        url=f"http://{host}:{port}",
        pid=os.getpid(),
        started=time.time(),
        version=__version__,
    )
    if info.cores < 1:
        raise SettingError(f"a node has 1 core at least, not {info.cores}")
    keyring = open_keyring(cluster)
    check_address(host, port)
    with alone(folder, f"the supervisor of {name}"):
        log = folder / "log.jsonl"
        logs.configure("supervisor", file=log, node=name, stderr=True)
        store = open_store(connect, keyring, root, wait)
        try:
            with AgentClient(keyring.node_token) as agents:
                bundles = BundleStore(store, signing_key(keyring.token), agents)
                unpacked = UnpackedBundles(bundles, folder / "bundles")
                instances = FolderInstances(node, OsProcesses(), keyring, unpacked)
                daemon = Supervisor(
                    store, info, instances, Machine(), is_dead=lambda other: was_ours(other, info)
                )
                agent = make_agent(
                    BlobFolder(folder / "blobs"),
                    lambda: [log, *(place / "log.jsonl" for place in instances.folders())],
                    keyring.node_token,
                    name,
                    hosts=[host],
                )
                stop = stop_on_signals()
                with serve(agent, host, port):
                    daemon.run(stop)
        finally:
            store.close()


def read_labels(text: str) -> dict[str, str]:
    """Read labels. Raises SettingError.

    >>> read_labels("disk=ssd,gpu=no"), read_labels("")
    ({'disk': 'ssd', 'gpu': 'no'}, {})
    """
    labels = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"{part!r} is not a label: write NAME=VALUE,NAME=VALUE")
        labels[name.strip()] = value.strip()
    return labels


def was_ours(other: NodeInfo, own: NodeInfo) -> bool:
    """Whether a registration of this node was left by a supervisor of this machine that is dead."""
    if other.host != own.host:
        return False
    try:
        # A process that has begun later has only inherited the number.
        return psutil.Process(other.pid).create_time() > other.started + 1.0
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False
