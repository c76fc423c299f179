"""What the client of a master raises. Apart, so that the command line knows it without the HTTP libraries."""

from __future__ import annotations

from penstock.errors import PenstockError, SettingError


class ClientError(PenstockError):
    """A master has refused a request; ``code`` says how, and ``status`` is HTTP's number."""

    def __init__(self, message: str, code: str, status: int) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class UnreachableError(PenstockError):
    """No master answers, or none that knows a leader."""


class NoClusterError(SettingError):
    """Nothing says where a cluster is, or what its token is."""
