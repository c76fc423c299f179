"""Waits until a job reaches a phase, such as running or ended."""

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
"""Seconds that a command waits by default for a change that should happen soon."""
_OVER = ("ENDED", "FAILED")


class WaitTimeoutError(PenstockError):
    """A command has waited for too long. The cluster continues with the change."""


def time_limit(given: float | None, *, lasting: bool = False) -> float:
    """Return the maximum number of seconds that a command waits.

    Draining a job has no limit, unless one is given; 0 stands for no limit.

    >>> time_limit(None), time_limit(None, lasting=True), time_limit(30.0), time_limit(0.0)
    (600.0, inf, 30.0, inf)
    """
    if given is None:
        return math.inf if lasting else LIMIT
    return given or math.inf


def find_job(client: MasterClient, name: str) -> dict[str, Any] | None:
    """Return a job as it is before a change; None when there is no such job."""
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

    With ``before``, how it was before it was started again, only what came after that counts: the end of the
    run before is no end, and its worker is not the one that is waited for. A running job counts when its
    code has at least the ``generation``, and with ``safe`` when all replicas that are wanted are in step and
    no other is left. Raises JobFailedError when it has failed or went back to the code before, and
    WaitTimeoutError after ``limit`` seconds.
    """
    told = None
    began = clock()
    while True:
        job = client.job(name)
        phase, reason, safety = job["phase"], job["reason"], job["safety"]
        if (phase, reason, safety) != told:
            told = (phase, reason, safety)
            typer.echo(", ".join(filter(None, (f"{name}: {phase}", safety, reason))), err=True)
        if phase in _OVER:
            if not _is_old(job, before):
                _check(name, job)
                if phase in phases:
                    return job
        elif phase in phases and _runs(job, before, generation) and (not safe or _is_safe(job)):
            return job
        if generation and job["spec"]["generation"] < generation:
            raise JobFailedError(
                f"the update of job {name!r} was refused, and it went back to the code before: "
                f"{_why_refused(client, name)}"
            )
        if clock() - began >= limit:
            raise WaitTimeoutError(_still(name, job, limit))
        sleep(POLL_SECONDS)


def _why_refused(client: MasterClient, name: str) -> str:
    id = alarm_id(UPDATE_REFUSED, name)
    reasons = [str(alarm["reason"]) for alarm in client.alarms() if alarm["id"] == id]
    return reasons[0] if reasons else f"see penstock logs {name}"


def _still(name: str, job: Mapping[str, Any], limit: float) -> str:
    """Return the error of a wait that took too long."""
    failures = job["failures"]
    failed = (
        f"; its worker has failed {failures['count']} times, last on {failures['node']}: {failures['reason']}"
        if failures
        else ""
    )
    return (
        f"job {name!r} is {job['phase']} after {limit:g} s: {job['reason']}{failed}. The cluster continues "
        f"with it; check penstock status {name}, or wait longer with --timeout"
    )


def _is_old(job: Mapping[str, Any], before: Mapping[str, Any] | None) -> bool:
    return before is not None and (job["phase"], job["since"]) == (before["phase"], before["since"])


def _check(name: str, job: Mapping[str, Any]) -> None:
    result = job["result"] or {}
    if job["phase"] == "FAILED":
        raise JobFailedError(f"job {name!r} has failed: {job['reason']}")
    # What became of an update that the job has gone back from is history.
    after = job.get("spec", {}).get("after", 0)
    if result.get("outcome") == "refused" and result.get("revision", after + 1) > after:
        raise JobFailedError(f"job {name!r} cannot run: {result.get('reason')}")


def _runs(job: Mapping[str, Any], before: Mapping[str, Any] | None, generation: int) -> bool:
    """Return whether only workers of the newest revisions are left, and have the wanted code."""
    given_out = before["status"]["revision"] if before is not None and before["status"] else 0
    assigned = job["replicas"] or [job["assignment"] or {"revision": 0, "generation": 0}]
    wanted = {
        each["revision"]
        for each in assigned
        if each["revision"] > given_out and each["generation"] >= generation
    }
    up = {worker["revision"] for worker in job["workers"]}
    return bool(up) and up <= wanted


def _is_safe(job: Mapping[str, Any]) -> bool:
    replicas = job["replicas"]
    if job["spec"]["settings"]["replicas"]["warm_standby"]:
        return len(replicas) > 1 and all(replica["phase"] in ("ready", "running") for replica in replicas)
    return len(replicas) == job["k"] + 1 and all(replica["in_step"] for replica in replicas)
