"""``penstock log delete``: remove a log that no known job uses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer

from penstock.cli.failing import user_errors
from penstock.cli.log_options import LogName, LogRoot
from penstock.errors import LogError
from penstock.log import Log, log_folder


@user_errors
def delete(
    name: LogName,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Delete it, and all records in it, for good.")] = False,
    root: LogRoot = None,
) -> None:
    """Delete a log and all its records. One that a job uses which is known here is left."""
    folder = log_folder(name, root)
    records = sum(part.records for part in Log.open(folder).stat().partitions)
    if folder.is_symlink():
        raise LogError(f"{folder} is a link to another place: delete the log there, then the link")
    home = folder.parent.parent
    users = [f"{job} ({place})" for job, place in users_of(name, home)]
    if users:
        raise LogError(
            f"log {name!r} is used by {', '.join(users)}, which could not go on without it: forget the job"
            " with its data first (penstock forget JOB --data), or remove its folder"
        )
    if not yes:
        raise LogError(f"log {name!r} has {records} records, which would be gone for good: say --yes")
    # By another name first: nobody finds half a log, and the name can be used again at once.
    away = folder.with_name(f".deleted-{uuid4().hex}")
    folder.rename(away)
    shutil.rmtree(away)
    typer.echo(f"deleted log {name} with {records} records", err=True)


def users_of(log: str, home: Path) -> list[tuple[str, Path]]:
    """Return the jobs below a folder that read or write a log, as they ran last, and where they are.

    One that cannot be read may do so, too.
    """
    found: list[tuple[str, Path]] = []
    for folder in _job_folders(home):
        path = folder / "job.json"
        try:
            vertices = json.loads(path.read_bytes())["vertices"]
            named = {vertex.get("options", {}).get("log") for vertex in vertices}
            job = folder.parent.name if folder.parent.parent.name == "cluster-jobs" else folder.name
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError, AttributeError):
            found.append(("a job whose structure cannot be read", path))
            continue
        if log in named:
            found.append((f"job {job!r}", folder))
    return found


def _job_folders(home: Path) -> Iterator[Path]:
    yield from sorted(home.glob("jobs/*"))
    yield from sorted(home.glob("cluster-jobs/*/*"))
