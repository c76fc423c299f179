"""``penstock list`` and ``penstock status``: print the jobs of a cluster, or the cluster itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command_errors import user_errors
from penstock.cli.command_options import Form, MasterUrl, Output, Watch, connect_client
from penstock.cli.table_output import format_age, format_bytes, make_table, print_view

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_ENDED = "ENDED"
_NO_BATCH = -1


@user_errors
def list_jobs(
    every: Annotated[bool, typer.Option("--all", "-a", help="Include jobs that have ended.")] = False,
    output: Form = Output.TEXT,
    watch: Watch = False,
    master_url: MasterUrl = None,
) -> None:
    """Print the jobs of the cluster."""
    with connect_client(master_url) as client:

        def read() -> list[dict[str, Any]]:
            return [job for job in client.jobs() if every or job["phase"] != _ENDED]

        print_view(read, jobs_table, output, watch)


@user_errors
def status(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="The job; without it, the whole cluster.")
    ] = None,
    output: Form = Output.TEXT,
    watch: Watch = False,
    master_url: MasterUrl = None,
) -> None:
    """Print the status of a job, or of the cluster."""
    with connect_client(master_url) as client:
        if job is None:
            print_view(client.cluster, _cluster, output, watch)
        else:
            name = job
            print_view(lambda: client.job(name), _job, output, watch)


def jobs_table(jobs: Sequence[Mapping[str, Any]], now: float) -> Table:
    """Return a table of jobs."""
    headings = (
        *("job", "phase", "safety", "node", "executors", "in", "out", "lag", "failures", "since", "reason"),
    )
    rows = []
    for job in jobs:
        progress = job["progress"] or {}
        rows.append(
            (
                job["name"],
                job["phase"],
                job["safety"] or "-",
                job["node"] or "-",
                job["executors"],
                _number(progress.get("records_in")),
                _number(progress.get("records_out")),
                _number(progress.get("lag")),
                job["failures"],
                format_age(job["since"], now),
                job["reason"],
            )
        )
    return make_table("", headings, rows, "executors in out lag failures since")


def _cluster(cluster: Mapping[str, Any], now: float) -> RenderableType:
    from rich.console import Group

    facts = [
        ("leader", cluster["leader"] or "none"),
        ("epoch", cluster["epoch"]),
        ("nodes", cluster["nodes"]),
        ("jobs", cluster["jobs"]),
        ("version", cluster["version"]),
    ]
    masters = [
        (master["name"], master["url"], master["pid"], format_age(master["started"], now))
        for master in cluster["masters"]
    ]
    return Group(
        make_table("", ("cluster", ""), facts), make_table("", ("master", "url", "pid", "up"), masters)
    )


def _job(job: Mapping[str, Any], now: float) -> RenderableType:
    from rich.console import Group

    spec, assignment, result, failures = job["spec"], job["assignment"], job["result"], job["failures"]
    wanted = spec["settings"]["resources"]
    facts = [
        ("phase", job["phase"]),
        ("reason", job["reason"]),
        ("since", f"{format_age(job['since'], now)} ago"),
        ("generation", spec["generation"]),
        ("entry", spec["entry"]),
        ("bundle", spec["bundle"][:12]),
        ("driver", f"{_cores(wanted['cores'])}, {format_bytes(wanted['memory'])}"),
    ]
    if spec.get("params"):
        facts.append(("parameters", _assignments(spec["params"])))
    if spec.get("env"):
        facts.append(("environment", _assignments(spec["env"])))
    if job["replicas"]:
        facts += [
            ("safety", job["safety"] or "-"),
            ("replicas", _replica_settings_text(spec["settings"]["replicas"])),
        ]
    if wanted["executors"]:
        each = f"{_cores(wanted['executor_cores'])}, {format_bytes(wanted['executor_memory'])}"
        facts.append(("executors", f"{wanted['executors']} of {each}"))
    if assignment is not None:
        facts.append(("assigned", f"{assignment['node']}: {assignment['reason'] or 'as requested'}"))
        facts += [(f"executor {slot['ordinal']}", slot["node"]) for slot in assignment["executors"]]
    if result is not None:
        facts.append(("result", f"{result['outcome']}: {result['reason']}"))
    if failures is not None:
        facts.append(
            ("failures", f"{failures['count']}, the last on {failures['node']}: {failures['reason']}")
        )
    parts: list[RenderableType] = [make_table("", (job["name"], ""), facts)]
    if job["replicas"]:
        parts.append(replicas_table(job["replicas"], now))
    if job["workers"]:
        parts.append(_workers(job["workers"], now))
    return Group(*parts)


def _assignments(values: Mapping[str, str | None]) -> str:
    """Return parameters or variables as text; those without a value take the value of the node.

    >>> _assignments({"region": "eu", "since": "2026-01-01", "DB_USER": None})
    'DB_USER (from the node), region=eu, since=2026-01-01'
    """
    shown = [
        f"{name} (from the node)" if value is None else f"{name}={value}" for name, value in values.items()
    ]
    return ", ".join(sorted(shown))


def _replica_settings_text(replicas: Mapping[str, Any]) -> str:
    """Return the replica settings as text.

    >>> replicas = {"k": 1, "warm_standby": False, "publisher": "primary", "recovery": "copy"}
    >>> _replica_settings_text(replicas)
    'k=1, publisher primary, recovery copy'
    """
    count = "warm standby" if replicas["warm_standby"] else f"k={replicas['k']}"
    return f"{count}, publisher {replicas['publisher']}, recovery {replicas['recovery']}"


def replicas_table(replicas: Sequence[Mapping[str, Any]], now: float) -> Table:
    """Return a table of a job's replicas."""
    headings = ("replica", "node", "phase", "batch", "behind", "failures", "last difference", "reason")
    rows = [
        (
            replica["number"],
            replica["node"] or "-",
            replica["phase"] if replica["whole"] else f"{replica['phase']}, lacks state",
            _number(replica["batch"] if replica["batch"] != _NO_BATCH else None),
            _number(replica["behind"]),
            replica["failures"],
            _difference(replica["differed"], now),
            replica["reason"] or "-",
        )
        for replica in replicas
    ]
    return make_table("", headings, rows, "replica batch behind failures")


def _difference(differed: Mapping[str, Any] | None, now: float) -> str:
    if differed is None:
        return "-"
    return f"batch {differed['batch']:,} of {differed['vertex']}, {format_age(differed['at'], now)} ago"


def _workers(workers: Sequence[Mapping[str, Any]], now: float) -> Table:
    headings = ("worker", "node", "pid", "phase", "batches", "in", "out", "lag", "since")
    rows = []
    for worker in workers:
        progress = worker["progress"]
        rows.append(
            (
                f"{worker['revision']}-{worker['attempt']}",
                worker["node"],
                worker["pid"],
                worker["phase"],
                _number(progress["batches"]),
                _number(progress["records_in"]),
                _number(progress["records_out"]),
                _number(progress["lag"]),
                format_age(worker["since"], now),
            )
        )
    return make_table("", headings, rows, "pid batches in out lag since")


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:,}"


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"
