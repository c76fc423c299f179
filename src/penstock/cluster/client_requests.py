"""What a client submits, and the errors with which a master refuses a request.

Knows neither HTTP nor the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import PenstockError


class RequestError(PenstockError):
    """Base class: a request is refused, for the reason in the message."""


class NotFoundError(RequestError):
    """There is no such job, node or alarm."""


class RefusedError(RequestError):
    """It is there, but this cannot be done with it now."""


class InvalidRequestError(RequestError):
    """The request is not valid, such as a damaged bundle or a number below 1."""


class NotLeaderError(RequestError):
    """Another master leads; ``url`` says which, or is empty while none does."""

    def __init__(self, url: str) -> None:
        super().__init__(f"the leader is {url}" if url else "there is no leader at the moment: try again")
        self.url = url


@dataclass(frozen=True)
class Submission:
    """What a user submits beside the code."""

    entry: str
    """``FILE[:JOB]`` inside the bundle."""
    structure: Mapping[str, Any]
    """``job.to_dict()``; its ``name`` is the job's."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the user gives of :class:`penstock.job_settings.JobSettings`, as plain data. The code and the
    defaults say the rest."""
    params: Mapping[str, str] = field(default_factory=dict)
    """What the code reads as ``ps.params``; an update changes those that it gives."""
    env: Mapping[str, str | None] = field(default_factory=dict)
    """Variables of the environment, given in the same way; None for the value that a node has."""
    fresh: bool = False
    """Whether what a job of this name has done before is forgotten."""
