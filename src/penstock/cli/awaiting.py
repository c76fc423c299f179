"""Waits until a job is where its user wants it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from penstock.errors import JobFailedError

if TYPE_CHECKING:
    from penstock.web.client import Client

EVERY = 0.5


def await_phase(
    client: Client,
    name: str,
    phases: tuple[str, ...],
    *,
    generation: int = 0,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Wait until a job is in one of some phases, telling on standard error what it waits for.

    A running job counts from the generation on that was asked for. Raises JobFailedError when it has failed.
    """
    told = None
    while True:
        job = client.job(name)
        phase, reason = job["phase"], job["reason"]
        if (phase, reason) != told:
            told = (phase, reason)
            typer.echo(f"{name}: {phase}" + (f", {reason}" if reason else ""), err=True)
        if phase == "FAILED":
            raise JobFailedError(f"job {name!r} has failed: {reason}")
        result = job["result"] or {}
        if phase == "ENDED" and result.get("outcome") == "refused":
            raise JobFailedError(f"job {name!r} cannot run: {result.get('reason')}")
        if phase in phases and (phase != "RUNNING" or _generation(job) >= generation):
            return job
        sleep(EVERY)


def _generation(job: dict[str, Any]) -> int:
    """Return which code runs: that of the revision whose worker is the only one left."""
    assignment = job["assignment"]
    revisions = {worker["revision"] for worker in job["workers"]}
    if assignment is None or revisions != {assignment["revision"]}:
        return 0
    return int(assignment["generation"])
