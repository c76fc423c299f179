"""Why a worker cannot be started. A master unpacks code as well, and does not import a supervisor for it."""

from __future__ import annotations

from penstock.errors import PenstockError


class RefusedStartError(PenstockError):
    """A worker cannot be started at all, on whatever node: trying again would be of no use."""


class FailedStartError(PenstockError):
    """A worker cannot be started here and now. That counts as a failure of it."""
