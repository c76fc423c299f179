"""A disk that is full: an error that says so, and nothing left behind."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import LogError

# A quota and a limit on the size of a file end a write as a full disk does.
_NO_ROOM = {
    errno.ENOSPC: "no space left on the device",
    errno.EDQUOT: "no space left in the user's quota",
    errno.EFBIG: "no space left: the file would be larger than the limit that is set for this process",
}


@contextmanager
def disk_full_as_log_error(log: str, consequence: str) -> Iterator[None]:
    """Turn the lack of room into a ``LogError`` that says what has not happened.

    >>> with disk_full_as_log_error("orders", "nothing was appended"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    penstock.errors.LogError: log 'orders': no space left on the device: nothing was appended. Make room, or \
let retention make some (`penstock log retain orders --bytes …`), and try again
    """
    try:
        yield
    except OSError as error:
        cause = _NO_ROOM.get(error.errno or 0)
        if cause is None:
            raise
        raise LogError(
            f"log {log!r}: {cause}: {consequence}. Make room, or let retention make some"
            f" (`penstock log retain {log} --bytes …`), and try again"
        ) from error
