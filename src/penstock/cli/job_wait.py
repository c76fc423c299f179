"""Waits for a job to reach a phase, such as running or ended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from penstock.cluster.alarms import UPDATE_REFUSED, alarm_id
from penstock.errors import JobFailedError, PenstockError
from penstock.web.cluster_access import ClientError

if TYPE_CHECKING:
    from penstock.web.master_client import MasterClient

POLL_SECONDS = 0.5
LIMIT = 600.0
"""Seconds that a command waits by default for a change that usually takes effect soon."""
_OVER = ("ENDED", "FAILED")


class WaitTimeoutError(PenstockError):
    """A command has waited too long. The cluster continues with the change."""


def time_limit(given: float | None, *, lasting: bool = False) -> float:
    """Return how many seconds a command waits at most.

    By default there is no limit for draining a job; a given 0 means no limit.

    >>> time_limit(None), time_limit(None, lasting=True), time_limit(30.0), time_limit(0.0)
    (600.0, inf, 30.0, inf)
    """
    if given is None:
        return math.inf if lasting else LIMIT
    return given or math.inf


def find_job(client: MasterClient, name: str) -> dict[str, Any] | None:
    """Return the current state of a job; None when there is no such job."""
    try:
        return client.job(name)
    except ClientError as error:
        if error.code != "unknown":
            raise
        return None


def wait_for_phase(
    client: MasterClient,
    name: str,
    phases: tuple[str, ...],
    *,
    before: Mapping[str, Any] | None = None,
    generation: int = 0,
    safe: bool = False,
    limit: float = math.inf,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Wait until a job is in one of the phases, and print each phase to standard error.

    ``before`` is the job's state before it was restarted: the end and the workers of that run do not count.
    A running job counts when its code has at least the ``generation``, and with ``safe`` when all requested
    replicas are in step and no others are left. Raises JobFailedError when the job has failed or has returned
    to its previous code, and WaitTimeoutError after ``limit`` seconds.
    """
    printed = None
    began = clock()
    while True:
        job = client.job(name)
        phase, reason, safety = job["phase"], job["reason"], job["safety"]
        if (phase, reason, safety) != printed:
            printed = (phase, reason, safety)
            typer.echo(", ".join(filter(None, (f"{name}: {phase}", safety, reason))), err=True)
        if phase in _OVER:
            if not _is_unchanged(job, before):
                _raise_if_failed(name, job)
                if phase in phases:
                    return job
        elif phase in phases and _runs(job, before, generation) and (not safe or _is_safe(job)):
            return job
        if generation and job["spec"]["generation"] < generation:
            raise JobFailedError(
                f"the update of job {name!r} was refused, and the job returned to its previous code: "
                f"{_why_refused(client, name)}"
            )
        if clock() - began >= limit:
            raise WaitTimeoutError(_timeout_message(name, job, limit))
        sleep(POLL_SECONDS)


def _why_refused(client: MasterClient, name: str) -> str:
    id = alarm_id(UPDATE_REFUSED, name)
    reasons = [str(alarm["reason"]) for alarm in client.alarms() if alarm["id"] == id]
    return reasons[0] if reasons else f"see penstock logs {name}"


def _timeout_message(name: str, job: Mapping[str, Any], limit: float) -> str:
    """Return the error message for a wait that took too long."""
    failures = job["failures"]
    failed = (
        f"; its worker has failed {failures['count']} times, last on {failures['node']}: {failures['reason']}"
        if failures
        else ""
    )
    return (
        f"job {name!r} is {job['phase']} after {limit:g} s: {job['reason']}{failed}. The cluster continues "
        f"with the change; check penstock status {name}, or wait longer with --timeout"
    )


def _is_unchanged(job: Mapping[str, Any], before: Mapping[str, Any] | None) -> bool:
    return before is not None and (job["phase"], job["since"]) == (before["phase"], before["since"])


def _raise_if_failed(name: str, job: Mapping[str, Any]) -> None:
    result = job["result"] or {}
    if job["phase"] == "FAILED":
        raise JobFailedError(f"job {name!r} has failed: {job['reason']}")
    # The result of a refused update does not count after the job has returned to its previous code.
    after = job.get("spec", {}).get("after", 0)
    if result.get("outcome") == "refused" and result.get("revision", after + 1) > after:
        raise JobFailedError(f"job {name!r} cannot run: {result.get('reason')}")


def _runs(job: Mapping[str, Any], before: Mapping[str, Any] | None, generation: int) -> bool:
    """Return whether only workers of the newest revisions are left, and run the requested code."""
    revision_before = before["status"]["revision"] if before is not None and before["status"] else 0
    assigned = job["replicas"] or [job["assignment"] or {"revision": 0, "generation": 0}]
    wanted = {
        each["revision"]
        for each in assigned
        if each["revision"] > revision_before and each["generation"] >= generation
    }
    up = {worker["revision"] for worker in job["workers"]}
    return bool(up) and up <= wanted


def _is_safe(job: Mapping[str, Any]) -> bool:
    replicas = job["replicas"]
    if job["spec"]["settings"]["replicas"]["warm_standby"]:
        return len(replicas) > 1 and all(replica["phase"] in ("ready", "running") for replica in replicas)
    return len(replicas) == job["k"] + 1 and all(replica["in_step"] for replica in replicas)
