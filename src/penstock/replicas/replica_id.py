"""The identity of a replica, and its text form in the store, in folder names, in JSON and in logs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Annotated, NamedTuple, Self

_SIGN = "~"
"""Not allowed in the name of a job."""
_INDEX = re.compile(r"[1-9][0-9]{0,5}")
_LARGEST = 999_999
_CACHED = 10_000


class ReplicaIdError(ValueError):
    """A text is not a valid name of a replica."""


class _JobAndIndex(NamedTuple):
    job: str
    index: int  # type: ignore[assignment]  # Not the method of a sequence.


class ReplicaId(_JobAndIndex):
    """A replica of a job. The first is written as the job's name, so that a running job can get replicas.

    >>> str(ReplicaId("count")), str(ReplicaId("count", 2))
    ('count', 'count~2')
    >>> ReplicaId.parse("count~2")
    ReplicaId(job='count', index=2)
    >>> sorted(map(ReplicaId.parse, ["count~10", "count-a", "count~2"]))[0].title
    'replica 2'
    """

    # A tuple, because decisions about thousands of jobs hash and compare identities most of the time.
    __slots__ = ()

    def __new__(cls, job: str, index: int = 0) -> Self:
        if not job or _SIGN in job or not 0 <= index <= _LARGEST:
            raise ReplicaIdError(f"no job {job!r} can have a replica {index}")
        return super().__new__(cls, job, index)

    def __str__(self) -> str:
        return f"{self.job}{_SIGN}{self.index}" if self.index else self.job

    @property
    def title(self) -> str:
        """The name of the replica in messages that also name its job."""
        return f"replica {self.index}"

    @staticmethod
    def parse(text: str) -> ReplicaId:
        """Parse the text form. Others raise ReplicaIdError: ``a~0``, ``a~01``, ``a~x`` and ``~1``."""
        return _parse(text)

    @staticmethod
    def find(text: str) -> ReplicaId | None:
        """Return the replica with a name, such as that of a folder; None if it is not the name of a replica.

        >>> ReplicaId.find("count~1"), ReplicaId.find("count~01")
        (ReplicaId(job='count', index=1), None)
        """
        try:
            return _parse(text)
        except ReplicaIdError:
            return None


@lru_cache(maxsize=_CACHED)
def _parse(text: str) -> ReplicaId:
    job, sign, index = text.partition(_SIGN)
    if sign and not _INDEX.fullmatch(index):
        raise ReplicaIdError(f"{text!r} is not the name of a replica")
    return ReplicaId(job, int(index or 0))


JobName = Annotated[str, ReplicaId]
"""The name of a job in a document. A document in which it cannot be one is not read."""
ReplicaName = Annotated[str, ReplicaId.parse]
"""The text form of a replica's identity in a document, likewise."""


class AboutReplica:
    """A document about one replica of a job, or about a job without replicas: then the replica is 0."""

    job: ReplicaName

    @cached_property
    def replica(self) -> ReplicaId:
        """The replica that ``job`` names."""
        return ReplicaId.parse(self.job)


def by_job(replicas: Iterable[ReplicaId]) -> dict[str, tuple[ReplicaId, ...]]:
    """Return replicas by job, those of each job in their order.

    >>> found = by_job(map(ReplicaId.parse, ["words", "count~10", "count~2", "count"]))
    >>> {job: [str(replica) for replica in own] for job, own in found.items()}
    {'count': ['count', 'count~2', 'count~10'], 'words': ['words']}
    """
    found: dict[str, list[ReplicaId]] = {}
    for replica in sorted(replicas):
        found.setdefault(replica.job, []).append(replica)
    return {job: tuple(own) for job, own in found.items()}


def job_in(text: str) -> str:
    """Return the job in the name of a node of the store, even if a later version has written the name.

    >>> job_in("count~2"), job_in("count~later"), job_in("~1")
    ('count', 'count', '~1')
    """
    return text.partition(_SIGN)[0] or text
