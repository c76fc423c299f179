"""``penstock submit`` and ``penstock update``.

Load and validate a job, pack its code, and send both to a master.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    usage,
)
from penstock.cli.job_wait import find_job, time_limit, wait_for_phase
from penstock.cli.setting_options import settings_options
from penstock.errors import SettingError
from penstock.graph.job_loader import load_job
from penstock.job_settings import JobSettings, Replicas
from penstock.parameters import params_set_to, read_env, read_params

if TYPE_CHECKING:
    from penstock.web.master_client import MasterClient


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
        "--requirements",
        metavar="FILE",
        help="A requirements.txt, without options of pip, with the packages that the job needs. A node that "
        "lacks one rejects the job; nothing is installed.",
    ),
]


@settings_options(JobSettings)
@user_errors
def submit(
    *,
    target: Target,
    settings: dict[str, Any],
    entry: Entry = None,
    requirements: Requirements = None,
    param: Param = None,
    env: Env = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="Start from scratch: delete the state and positions of this name. Logs are kept."
        ),
    ] = False,
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

    params, variables = usage(read_params, param or []), usage(read_env, env or [])
    packed = _pack(target, entry, requirements, settings.get("replicas", {}), params)
    submission = Submission(
        packed.entry, packed.structure, settings, params=params, env=variables, fresh=fresh
    )
    until = settings.get("until")
    with connect_client(master_url) as client:
        _upload(client, packed)
        name = packed.structure["name"]
        before = find_job(client, name) if wait else None
        done = _print_generation(client.submit(submission, packed.sha256), "submitted")
        if wait:
            phases = ("ENDED",) if until else ("RUNNING", "ENDED")
            limit = time_limit(timeout, lasting=until is not None)
            done = wait_for_phase(client, name, phases, before=before, limit=limit)
        _print(done, output)


@settings_options(Replicas)
@user_errors
def update(
    *,
    job: JobName,
    target: Annotated[
        str | None,
        typer.Argument(metavar="[FILE[:JOB]|FOLDER]", help="The file with the new code, or its folder."),
    ] = None,
    entry: Entry = None,
    requirements: Requirements = None,
    param: Param = None,
    env: Env = None,
    settings: dict[str, Any],
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
    replicas = settings
    if target is None:
        if entry is not None or requirements is not None:
            raise typer.BadParameter("--entry and --requirements are for new code: name its file or folder")
        if replicas and (params or variables):
            raise typer.BadParameter(
                "one command cannot change parameters and replicas: use a command for each"
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
        # Loading the code may read parameters. The master hides secret ones, so the code reads placeholders.
        known = client.job(job)["spec"].get("params", {})
        packed = _pack(target, entry, requirements, replicas, {**known, **params})
        if packed.structure["name"] != job:
            raise SettingError(f"{target} defines job {packed.structure['name']!r}, not {job!r}")
        _upload(client, packed)
        submission = Submission(
            packed.entry, packed.structure, {"replicas": replicas}, params=params, env=variables
        )
        done = _print_generation(client.update(job, submission, packed.sha256), "updated")
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
    """Load and validate a job, and pack its code.

    Replica options are validated with the job, but are not part of the returned structure.
    """
    from penstock.bundles.bundle_archive import open_bundle
    from penstock.bundles.bundle_packer import pack
    from penstock.bundles.bundle_signature import sha256_of

    path, within = _place(target, entry)
    if path.is_dir():
        # A package is imported by its name, from its parent folder.
        package = (path / "__init__.py").is_file()
        sys.path.insert(0, str(path.resolve().parent if package else path.resolve()))
    with params_set_to(params):
        job = load_job(f"{path / within}" if path.is_dir() else target)
        job.validate()
    structure = job.to_dict()
    if replicas:
        job.replicas = replace(job.replicas, **replicas)
        job.validate()
    try:
        json.dumps(structure, allow_nan=False)
    except ValueError as error:
        raise SettingError(f"job {job.name!r} has a setting that JSON cannot represent: {error}") from error
    data = pack(path, entry=within, requirements=requirements)
    return _PackedJob(open_bundle(data).manifest.entry, structure, sha256_of(data), data)


def _place(target: str, entry: str | None) -> tuple[Path, str]:
    """Return the file or folder to pack, and which file of it defines the job."""
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


def _upload(client: MasterClient, packed: _PackedJob) -> None:
    from penstock.bundles.bundle_signature import sign
    from penstock.keyring import signing_key

    client.put_bundle(packed.sha256, sign(packed.data, signing_key(client.token)), packed.data)


def _print_generation(done: dict[str, Any], what: str) -> dict[str, Any]:
    typer.echo(f"{what} {done['name']}, generation {done['generation']}", err=True)
    return done


def _print(found: dict[str, Any], output: Output) -> None:
    if output is Output.JSON:
        typer.echo(json.dumps(found))
