"""Waits until a cluster that was started serves, and shows what it has become."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from penstock.cli.asking import probe_url
from penstock.cli.local_cluster import token_file
from penstock.cli.output import Output
from penstock.daemons.layout import MASTER, SUPERVISOR, Layout
from penstock.errors import PenstockError

_LOOK_SECONDS = 0.2


def wait_ready(layout: Layout, token: str, timeout: float, check: Callable[[], None]) -> dict[str, Any]:
    """Wait until a master leads and all nodes are registered; return what the leader says of itself.

    ``check`` is called all the time and may raise. Raises PenstockError when it takes too long.
    """
    deadline = time.monotonic() + timeout
    while True:
        check()
        missing, state = find_missing(layout, token)
        if not missing:
            return state
        if time.monotonic() >= deadline:
            raise PenstockError(
                f"it is not up after {timeout:g} seconds: {missing}. {last_output_lines(layout)}"
            )
        time.sleep(_LOOK_SECONDS)


def find_missing(layout: Layout, token: str) -> tuple[str, dict[str, Any]]:
    """Return what is missing, and what the leader says."""
    silent = [daemon.name for daemon in layout.of(MASTER) if probe_url(f"{daemon.url}/readyz") is None]
    if silent:
        return f"{', '.join(silent)} cannot serve yet", {}
    url = layout.of(MASTER)[0].url
    cluster, nodes = (
        probe_url(f"{url}/api/v1/cluster", token=token),
        probe_url(f"{url}/api/v1/nodes", token=token),
    )
    if cluster is None or nodes is None or not cluster.content.get("leader"):
        return "no master leads yet", {}
    there = {node["name"] for node in nodes.content}
    absent = [daemon.name for daemon in layout.of(SUPERVISOR) if daemon.name not in there]
    if absent:
        return f"{', '.join(absent)} did not register yet", {}
    return "", cluster.content


def last_output_lines(layout: Layout) -> str:
    """Return the last line that each daemon printed that printed any."""
    found = []
    for daemon in layout.daemons:
        path = Path(daemon.folder) / "output.txt"
        try:
            lines = path.read_text(errors="replace").strip().splitlines()
        except OSError:
            continue
        if lines:
            found.append(f"{daemon.name} says: {lines[-1][:300]}")
    return "\n".join(["", *found]) if found else ""


def print_cluster(layout: Layout, cluster: Path, state: dict[str, Any], output: Output) -> None:
    """Print where everything is."""
    leader = state.get("leader", "")
    if output is Output.JSON:
        content = {
            "leader": leader,
            "connect": layout.connect,
            "storage": layout.storage,
            "token_file": str(token_file(cluster)),
            "daemons": [
                {"name": daemon.name, "kind": daemon.kind, "url": daemon.url, "folder": daemon.folder}
                | ({"address": f"{daemon.host}:{daemon.ports[0]}"} if not daemon.url else {})
                for daemon in layout.daemons
            ],
        }
        typer.echo(json.dumps(content))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "address", "", title="cluster")
    for daemon in layout.daemons:
        table.add_row(
            daemon.name,
            daemon.url or f"{daemon.host}:{daemon.ports[0]}",
            "leads" if daemon.name == leader else "",
        )
    console = Console()
    console.print(table)
    console.print(f"token: {token_file(cluster)}", soft_wrap=True, highlight=False)
