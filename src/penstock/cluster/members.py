"""The names of a job's replicas. The first has the job's own: a job can get replicas while it runs."""

from __future__ import annotations

from collections.abc import Iterable

_SIGN = "~"
"""Not allowed in the name of a job."""


def member_name(job: str, number: int) -> str:
    """Return the name under which a replica is assigned, started, and keeps its files.

    >>> member_name("count", 0), member_name("count", 2)
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


def number_of(member: str) -> int:
    """Return which of the replicas it is.

    >>> number_of("count~2"), number_of("count")
    (2, 0)
    """
    return int(member.partition(_SIGN)[2] or 0)


def title_of(member: str) -> str:
    """Return how a replica is called where people read of it beside its job.

    >>> title_of("count"), title_of("count~2")
    ('replica 0', 'replica 2')
    """
    return f"replica {number_of(member)}"
