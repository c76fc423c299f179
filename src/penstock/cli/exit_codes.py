"""What ``penstock`` returns to the shell, by command line and by what went wrong."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.web.errors import ClientError, NoClusterError, UnreachableError

OK = 0
FAILED = 1
"""The job failed or is wrong, or the cluster has refused what was asked."""
USAGE = 2
"""The command line itself is wrong."""
UNREACHABLE = 3
"""No master answers, or none is known."""
UNKNOWN = 4
"""There is no such job, node or alarm."""
INTERRUPTED = 130
"""Ctrl-C, where it does not simply end what goes on for ever."""

EPILOG = (
    "Exit codes: 0 done, 1 failed or refused, 2 wrong usage, 3 no master can be reached, "
    "4 no such job, node or alarm."
)


def exit_code_of(error: PenstockError) -> int:
    """Return the code that an error ends the program with.

    >>> code_of(UnreachableError("no master")), code_of(ClientError("no job 'a'", "unknown", 404))
    (3, 4)
    """
    if isinstance(error, UnreachableError | NoClusterError):
        return UNREACHABLE
    if isinstance(error, ClientError) and error.code == "unknown":
        return UNKNOWN
    return FAILED
