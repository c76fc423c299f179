"""Lowers the priority of a worker that is not needed yet, so that it does not slow down others on its
machine.

Starting Spark uses all processors for some seconds. A replica that joins while others run is not urgent, and
would take processor time from other workers on the machine.
"""

from __future__ import annotations

import os
import resource
import threading
from contextlib import suppress

LONGEST = 30.0
"""The maximum number of seconds with a lower priority.

On a busy node the start would otherwise take minutes, and the worker would be killed as hanging.
"""
_STEP = 15
"""Increase of the nice value: the process gets about 1/30 of the time of others on the same core."""
_MAX_NICE = 19
_NICE_LIMIT = 20


class ProcessPriority:
    """Lowers the priority of a worker's processes, and restores it later.

    It does nothing if the process is not permitted to restore the priority.
    """

    def __init__(self) -> None:
        self._usual = os.getpriority(os.PRIO_PROCESS, 0)
        self._timer: threading.Timer | None = None

    def lower(self, seconds: float = LONGEST) -> None:
        """Lower the priority of this thread and of all that it starts, for at most ``seconds``."""
        if can_restore_priority(self._usual):
            os.setpriority(os.PRIO_PROCESS, 0, min(self._usual + _STEP, _MAX_NICE))
            self._timer = threading.Timer(seconds, self._raise)
            self._timer.daemon = True
            self._timer.start()

    def restore(self) -> None:
        """Restore the usual priority of all threads of this process and of its descendants."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._raise()

    def _raise(self) -> None:
        import psutil  # Imported here because most workers never lower their priority.

        own = psutil.Process()
        for process in (own, *own.children(recursive=True)):
            with suppress(psutil.Error):
                for thread in process.threads():
                    with suppress(ProcessLookupError, PermissionError):
                        os.setpriority(os.PRIO_PROCESS, thread.id, self._usual)


def can_restore_priority(usual: int) -> bool:
    """Return whether a process with an increased nice value is permitted to decrease it to ``usual``."""
    limit = resource.getrlimit(resource.RLIMIT_NICE)[0]
    return os.geteuid() == 0 or limit == resource.RLIM_INFINITY or _NICE_LIMIT - limit <= usual
