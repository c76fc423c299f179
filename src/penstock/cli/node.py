"""``penstock nodes``, ``alarms`` and ``rebalance``.

Print the nodes and alarms of a cluster, and move drivers to emptier nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command_errors import user_errors
from penstock.cli.command_options import Form, MasterUrl, Output, Watch, connect_client
from penstock.cli.table_output import format_age, format_bytes, make_table, print_view
from penstock.replicas.replica_id import ReplicaId

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


@user_errors
def nodes(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The node; by default all nodes.")
    ] = None,
    output: Form = Output.TEXT,
    watch: Watch = False,
    master_url: MasterUrl = None,
) -> None:
    """Print the nodes of the cluster, or one of them with its workers."""
    with connect_client(master_url) as client:
        if name is None:
            print_view(client.nodes, nodes_table, output, watch)
        else:
            wanted = name
            print_view(lambda: client.node(wanted), _node, output, watch)


@user_errors
def alarms(
    clear: Annotated[
        str | None, typer.Option("--clear", metavar="ID", help="Clear this alarm; its job may run again.")
    ] = None,
    output: Form = Output.TEXT,
    watch: Watch = False,
    master_url: MasterUrl = None,
) -> None:
    """Print the alarms of the cluster, or clear one."""
    if clear is not None and watch:
        raise typer.BadParameter("--clear and --watch exclude each other")
    with connect_client(master_url) as client:
        if clear is not None:
            client.clear(clear)
            typer.echo(f"alarm {clear} is cleared", err=True)
            if output is Output.JSON:
                print_view(client.alarms, _alarms, output, False)
            return
        print_view(client.alarms, _alarms, output, watch)


def nodes_table(nodes: Sequence[Mapping[str, Any]], now: float) -> Table:
    """Return a table of nodes."""
    headings = (
        "node",
        "host",
        "cores",
        "memory",
        "cpu",
        "used",
        "in/s",
        "out/s",
        "rack",
        "labels",
        "jobs",
        "up",
    )
    rows = []
    for node in nodes:
        report = node["report"]
        figures = ("-", "-", "-", "-")
        if report is not None:
            used = f"{format_bytes(report['memory_used'])}/{format_bytes(report['memory_total'])}"
            figures = (
                f"{report['cpu']:.0%}",
                used,
                format_bytes(report["network_in"]),
                format_bytes(report["network_out"]),
            )
        labels = ",".join(f"{name}={value}" for name, value in sorted(node["labels"].items()))
        jobs = ", ".join(node["jobs"]) or "-"
        facts = (node["name"], node["host"], node["cores"], format_bytes(node["memory"]))
        rows.append(
            (*facts, *figures, node["rack"] or "-", labels or "-", jobs, format_age(node["started"], now))
        )
    return make_table("", headings, rows, "cores memory cpu used in/s out/s up")


def _node(node: Mapping[str, Any], now: float) -> RenderableType:
    from rich.console import Group

    workers = (node["report"] or {}).get("workers", ())
    headings = ("job", "role", "worker", "pid", "state", "cpu", "memory", "failures", "since")
    rows = [
        (
            ReplicaId.parse(worker["job"]).job,
            _role(worker),
            f"{worker['revision']}-{worker['attempt']}",
            worker["pid"],
            worker["state"],
            f"{worker['cpu']:.2f}",
            format_bytes(worker["memory"]),
            worker["failures"],
            format_age(worker["since"], now),
        )
        for worker in workers
    ]
    workers_table = make_table("", headings, rows, "pid cpu memory failures since")
    return Group(nodes_table([node], now), workers_table)


def _role(worker: Mapping[str, Any]) -> str:
    """Return the role of a process as text.

    >>> _role({"job": "words", "role": "driver"}), _role({"job": "words~1", "role": "driver"})
    ('driver', 'driver of replica 1')
    """
    replica = ReplicaId.parse(worker["job"])
    return f"{worker['role']} of {replica.title}" if replica.index else str(worker["role"])


def _alarms(alarms: Sequence[Mapping[str, Any]], now: float) -> RenderableType:
    if not alarms:
        return "no alarms"
    rows = [
        (alarm["id"], alarm["kind"], alarm["subject"], format_age(alarm["since"], now), alarm["reason"])
        for alarm in alarms
    ]
    return make_table("", ("id", "kind", "subject", "since", "reason"), rows, "since")


@user_errors
def rebalance(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the moves without making them.")] = False,
    output: Form = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """Move drivers from full nodes to emptier ones, where the jobs continue from their last batch."""
    with connect_client(master_url) as client:
        done = client.rebalance(dry_run)
    if output is Output.JSON:
        typer.echo(json.dumps(done))
        return
    for move in done["moves"]:
        typer.echo(f"{move['job']}: {move['origin']} -> {move['target']} ({move['reason']})")
    if not done["moves"]:
        typer.echo("nothing to move", err=True)
