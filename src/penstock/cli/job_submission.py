"""``penstock submit`` and ``penstock update``.

Load and validate a job, pack its code, and send both to a master.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command_errors import user_errors
from penstock.cli.command_options import (
    Env,
    Form,
    JobName,
    MasterUrl,
    Output,
    Param,
    Timeout,
    Wait,
    connect_client,
    read_labels,
    read_memory,
    usage,
)
from penstock.cli.job_wait import find_job, time_limit, wait_for_phase
from penstock.errors import SettingError
from penstock.graph.job_loader import load_job
from penstock.parameters import params_set_to, read_env, read_params
from penstock.replicas.replication_settings import REPLICATION_CHOICES
from penstock.spark.spark_settings import read_conf

if TYPE_CHECKING:
    from penstock.web.master_client import MasterClient


K = Annotated[
    int | None,
    typer.Option(
        "--k",
        min=0,
        max=100,
        metavar="N",
        help="How many nodes may fail without interrupting the job; k + 1 replicas run.",
    ),
]
Recovery = Annotated[
    str | None,
    typer.Option("--recovery", metavar="snapshot|next-window", help="How a new replica gets its state."),
]
Replication = Annotated[
    str | None,
    typer.Option(
        "--replication",
        metavar="active|standby",
        help="Which replica publishes output: the first to commit a batch, or the primary.",
    ),
]
Standby = Annotated[
    str | None,
    typer.Option("--standby", metavar="warm|none", help="warm: with k=0, keep a second replica ready."),
]

_CHOICES = {
    setting: {value or "none": value for value in values} for setting, values in REPLICATION_CHOICES.items()
}


def read_replication(
    k: int | None, recovery: str | None, replication: str | None, standby: str | None
) -> dict[str, Any]:
    """Return the given settings by name. An invalid choice is wrong usage.

    >>> read_replication(1, None, "standby", None)
    {'k': 1, 'replication': 'standby'}
    """
    given = {"recovery": recovery, "replication": replication, "standby": standby}
    found: dict[str, Any] = {} if k is None else {"k": k}
    for name, value in given.items():
        if value is None:
            continue
        if value not in _CHOICES[name]:
            choices = " or ".join(repr(choice) for choice in _CHOICES[name])
            raise typer.BadParameter(f"--{name} takes {choices}, not {value!r}")
        found[name] = _CHOICES[name][value]
    return found


Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE[:JOB]|FOLDER", help="The file that defines the job, or the folder of its code."
    ),
]
Entry = Annotated[
    str | None, typer.Option("--entry", metavar="FILE[:JOB]", help="The file in FOLDER that defines the job.")
]
Requirements = Annotated[
    Path | None,
    typer.Option(
        "--requirements", metavar="FILE", help="A requirements.txt with the packages that the job needs."
    ),
]


@user_errors
def submit(
    target: Target,
    entry: Entry = None,
    requirements: Requirements = None,
    cores: Annotated[int, typer.Option(min=1, help="Cores of the driver's node.")] = 1,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory of the driver.")] = "2g",
    executors: Annotated[int, typer.Option(min=0, help="Number of executors, on any nodes.")] = 0,
    executor_cores: Annotated[int, typer.Option(min=1, help="Cores of each executor.")] = 1,
    executor_memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory of each executor.")] = "1g",
    node: Annotated[
        list[str] | None, typer.Option("--node", metavar="NAME", help="A node that it may use; repeatable.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=VALUE", help="A label that its nodes must have; repeatable."),
    ] = None,
    spark_master: Annotated[
        str | None,
        typer.Option("--spark-master", metavar="URL", help="The master of your own Spark cluster to run on."),
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting; repeatable.")
    ] = None,
    param: Param = None,
    env: Env = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="drained", help="End the job when all input is processed."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start from scratch: delete the state and positions of this name.")
    ] = False,
    keep: Annotated[
        str,
        typer.Option(
            "--keep",
            metavar="shared|node",
            help="Where its data is: on storage that all nodes share, or on one node with a backup on "
            "another.",
        ),
    ] = "shared",
    strategy: Annotated[
        str,
        typer.Option("--strategy", metavar="NAME|MODULE:CLASS", help="The placement strategy."),
    ] = "",
    k: K = None,
    recovery: Recovery = None,
    replication: Replication = None,
    standby: Standby = None,
    wait: Wait = False,
    timeout: Timeout = None,
    output: Form = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """Submit a job to the cluster, which keeps it running.

    With --wait, return when the job runs, or with --until drained when it has ended. Replica options that are
    not given are taken from the job's code.
    """
    from penstock.cluster.client_requests import Submission
    from penstock.cluster.documents import Resources

    if until not in (None, "drained"):
        raise typer.BadParameter(f"--until takes 'drained', not {until!r}")
    if keep not in ("shared", "node"):
        raise typer.BadParameter(f"--keep takes 'shared' or 'node', not {keep!r}")
    resources = Resources(
        cores=cores,
        memory=usage(read_memory, memory),
        executors=executors,
        executor_cores=executor_cores,
        executor_memory=usage(read_memory, executor_memory),
    )
    labels = usage(read_labels, label or [])
    settings = usage(read_conf, conf or [])
    params, variables = usage(read_params, param or []), usage(read_env, env or [])
    replicas = read_replication(k, recovery, replication, standby)
    packed = _pack(target, entry, requirements, replicas, params)
    submission = Submission(
        entry=packed.entry,
        structure=packed.structure,
        resources=resources,
        nodes=tuple(node or ()),
        labels=labels,
        spark_master=spark_master,
        conf=settings,
        params=params,
        env=variables,
        until=until,
        fresh=fresh,
        keep=keep,
        strategy=strategy,
        **replicas,
    )
    with connect_client(master_url) as client:
        _put(client, packed)
        name = packed.structure["name"]
        before = find_job(client, name) if wait else None
        done = _told(client.submit(submission, packed.sha256), "submitted")
        if wait:
            phases = ("ENDED",) if until else ("RUNNING", "ENDED")
            limit = time_limit(timeout, lasting=until is not None)
            done = wait_for_phase(client, name, phases, before=before, limit=limit)
        _print(done, output)


@user_errors
def update(
    job: JobName,
    target: Annotated[
        str | None,
        typer.Argument(metavar="[FILE[:JOB]|FOLDER]", help="The file with the new code, or its folder."),
    ] = None,
    entry: Entry = None,
    requirements: Requirements = None,
    param: Param = None,
    env: Env = None,
    k: K = None,
    recovery: Recovery = None,
    replication: Replication = None,
    standby: Standby = None,
    wait: Wait = False,
    timeout: Timeout = None,
    output: Form = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """Update the code of a running job, its parameters, or its replication.

    The job continues from its last batch without losing a record. Parameters and variables that are not given
    keep their values. To change resources, use penstock scale.
    """
    params, variables = usage(read_params, param or []), usage(read_env, env or [])
    replicas = read_replication(k, recovery, replication, standby)
    if target is None:
        if entry is not None or requirements is not None:
            raise typer.BadParameter("--entry and --requirements are for new code: name the file that has it")
        if replicas and (params or variables):
            raise typer.BadParameter(
                "parameters and replicas cannot be changed by one command: change one after the other"
            )
        if replicas:
            _replicate(job, replicas, wait, timeout, output, master_url)
        elif params or variables:
            _set_params(job, params, variables, wait, timeout, output, master_url)
        else:
            raise typer.BadParameter("name what to change: a file with new code, --param, --k, --recovery, …")
        return
    from penstock.cluster.client_requests import Submission

    with connect_client(master_url) as client:
        # Its code may read parameters when it is loaded. Hidden ones are not told, and loaded as such.
        known = client.job(job)["spec"].get("params", {})
        packed = _pack(target, entry, requirements, replicas, {**known, **params})
        if packed.structure["name"] != job:
            raise SettingError(f"{target} defines job {packed.structure['name']!r}, not {job!r}")
        _put(client, packed)
        submission = Submission(packed.entry, packed.structure, params=params, env=variables, **replicas)
        done = _told(client.update(job, submission, packed.sha256), "updated")
        if wait:
            limit = time_limit(timeout)
            wanted = done["generation"]
            done = wait_for_phase(client, job, ("RUNNING", "ENDED"), generation=wanted, limit=limit)
        _print(done, output)


def _replicate(
    job: str,
    replicas: dict[str, Any],
    wait: bool,
    timeout: float | None,
    output: Output,
    master_url: str | None,
) -> None:
    with connect_client(master_url) as client:
        done = client.replicate(job, replicas)
        typer.echo(f"{done['name']}: {done['reason']}", err=True)
        if wait:
            limit = time_limit(timeout)
            done = wait_for_phase(client, job, ("RUNNING", "ENDED"), safe=True, limit=limit)
        _print(done, output)


def _set_params(
    job: str,
    params: dict[str, str],
    env: dict[str, str | None],
    wait: bool,
    timeout: float | None,
    output: Output,
    master_url: str | None,
) -> None:
    with connect_client(master_url) as client:
        done = client.set_params(job, params, env)
        typer.echo(f"{done['name']}: {done['reason']}", err=True)
        if wait:
            limit, wanted = time_limit(timeout), done["generation"]
            done = wait_for_phase(client, job, ("RUNNING", "ENDED"), generation=wanted, limit=limit)
        _print(done, output)


@dataclass(frozen=True)
class _PackedJob:
    """A job that was loaded and validated, ready to be submitted."""

    entry: str
    structure: dict[str, Any]
    sha256: str
    data: bytes


def _pack(
    target: str,
    entry: str | None,
    requirements: Path | None,
    replicas: Mapping[str, Any],
    params: Mapping[str, str],
) -> _PackedJob:
    """Load and validate a job before it is sent, and pack its code.

    Replica options are validated with it, but do not change the settings of the code.
    """
    from penstock.bundles.bundle_archive import open_bundle
    from penstock.bundles.bundle_packer import pack
    from penstock.bundles.bundle_signature import sha256_of

    path, within = _place(target, entry)
    if path.is_dir():
        # A package is imported by its name, from the folder that it is in.
        package = (path / "__init__.py").is_file()
        sys.path.insert(0, str(path.resolve().parent if package else path.resolve()))
    with params_set_to(params):
        job = load_job(f"{path / within}" if path.is_dir() else target)
        job.validate()
    structure = job.to_dict()
    if replicas:
        for name, value in replicas.items():
            setattr(job, name, value)
        job.validate()
    try:
        json.dumps(structure, allow_nan=False)
    except ValueError as error:
        raise SettingError(f"job {job.name!r} has a setting that JSON cannot hold: {error}") from error
    data = pack(path, entry=within, requirements=requirements)
    return _PackedJob(open_bundle(data).manifest.entry, structure, sha256_of(data), data)


def _place(target: str, entry: str | None) -> tuple[Path, str]:
    """Return what to pack, and which file of it defines the job."""
    path = Path(target)
    if path.is_dir():
        if entry is None:
            raise typer.BadParameter(f"{target} is a folder: name the file that defines the job with --entry")
        return path, entry
    if entry is not None:
        raise typer.BadParameter("--entry is for folders: write FILE:JOB")
    if path.is_file():
        return path, path.name
    file, colon, job = target.rpartition(":")
    if colon and Path(file).is_file():
        return Path(file), f"{Path(file).name}:{job}"
    raise SettingError(f"there is no file or folder {target}")


def _put(client: MasterClient, packed: _PackedJob) -> None:
    from penstock.bundles.bundle_signature import sign
    from penstock.keyring import signing_key

    client.put_bundle(packed.sha256, sign(packed.data, signing_key(client.token)), packed.data)


def _told(done: dict[str, Any], what: str) -> dict[str, Any]:
    typer.echo(f"{what} {done['name']}, generation {done['generation']}", err=True)
    return done


def _print(found: dict[str, Any], output: Output) -> None:
    if output is Output.JSON:
        typer.echo(json.dumps(found))
