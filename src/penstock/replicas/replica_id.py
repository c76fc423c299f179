"""The names of a job's replicas. The first has the job's own name, so that a running job can get replicas."""

from __future__ import annotations

from collections.abc import Iterable

_SIGN = "~"
"""Not allowed in the name of a job."""


def replica_name(job: str, number: int) -> str:
    """Return the name under which a replica is assigned, started, and keeps its files.

    >>> replica_name("count", 0), replica_name("count", 2)
    ('count', 'count~2')
    """
    return f"{job}{_SIGN}{number}" if number else job


def job_of(member: str) -> str:
    """Return the job of a replica.

    >>> job_of("count~2"), job_of("count")
    ('count', 'count')
    """
    return member.partition(_SIGN)[0]


def by_job(members: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of replicas, sorted, by job.

    >>> by_job(["words", "count~1", "count"])
    {'count': ('count', 'count~1'), 'words': ('words',)}
    """
    found: dict[str, list[str]] = {}
    for member in sorted(members):
        found.setdefault(job_of(member), []).append(member)
    return {job: tuple(names) for job, names in found.items()}


def replica_number(member: str) -> int:
    """Return which of the replicas it is.

    >>> replica_number("count~2"), replica_number("count")
    (2, 0)
    """
    return int(member.partition(_SIGN)[2] or 0)


def replica_title(member: str) -> str:
    """Return how a replica is called where people read of it beside its job.

    >>> replica_title("count"), replica_title("count~2")
    ('replica 0', 'replica 2')
    """
    return f"replica {replica_number(member)}"
