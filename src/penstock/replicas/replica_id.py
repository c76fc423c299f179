"""The identity of a replica, and its text form in the store, in folder names, in JSON and in logs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

_SIGN = "~"
"""Not allowed in the name of a job."""
_INDEX = re.compile(r"[1-9][0-9]{0,5}")
_LARGEST = 999_999
_CACHED = 10_000


class ReplicaIdError(ValueError):
    """A text is not a valid name of a replica."""


@dataclass(frozen=True, order=True)
class ReplicaId:
    """A replica of a job. The name of the first is the job's name, so that a running job can get replicas.

    >>> str(ReplicaId("count")), str(ReplicaId("count", 2))
    ('count', 'count~2')
    >>> ReplicaId.parse("count~2")
    ReplicaId(job='count', index=2)
    >>> sorted(map(ReplicaId.parse, ["count~10", "count-a", "count~2"]))[0].title
    'replica 2'
    """

    job: str
    index: int = 0

    def __post_init__(self) -> None:
        if not self.job or _SIGN in self.job or not 0 <= self.index <= _LARGEST:
            raise ReplicaIdError(f"no job {self.job!r} can have a replica {self.index}")

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


def by_job(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Group the names of replicas by job, in the order of their indexes.

    >>> by_job(["words", "count~10", "count~2", "count"])
    {'count': ('count', 'count~2', 'count~10'), 'words': ('words',)}
    """
    found: dict[str, list[str]] = {}
    for replica, name in sorted((ReplicaId.parse(name), name) for name in names):
        found.setdefault(replica.job, []).append(name)
    return {job: tuple(own) for job, own in found.items()}


def job_in(text: str) -> str:
    """Return the job in the name of a node of the store, even if a later version has written the name.

    >>> job_in("count~2"), job_in("count~later"), job_in("~1")
    ('count', 'count', '~1')
    """
    return text.partition(_SIGN)[0] or text
