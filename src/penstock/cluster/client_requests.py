"""The submission of a client, and the errors of refused requests.

This module knows neither HTTP nor the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import PenstockError


class RequestError(PenstockError):
    """Base class of the errors of a refused request; the message has the reason."""


class NotFoundError(RequestError):
    """There is no such job, node or alarm."""


class RefusedError(RequestError):
    """The request is valid, but its subject does not allow it now."""


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
    """The given :class:`penstock.job_settings.JobSettings`, as plain data; others come from the code and the
    defaults."""
    params: Mapping[str, str] = field(default_factory=dict)
    """The parameters that the code reads as ``ps.params``; an update changes only the given ones."""
    env: Mapping[str, str | None] = field(default_factory=dict)
    """Environment variables, likewise; None takes the value from the node's environment."""
    fresh: bool = False
    """Whether the job starts from scratch, without the data of an earlier job of its name."""
