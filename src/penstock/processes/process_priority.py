"""Lowers the priority of a worker that is not needed yet, so that it does not slow down others on its
machine.

Starting Spark uses all processors for some seconds. A replica that joins while others run is not urgent, and
would take that time from other workers on the machine.
"""

from __future__ import annotations

import os
import resource
import threading
from contextlib import suppress

LONGEST = 30.0
"""The maximum number of seconds with a lower priority.

On a busy node the start would otherwise take minutes, and the worker would be killed because it hangs.
"""
_STEP = 15
"""So much nicer: about a thirtieth of the processor that others on the same core get."""
_NICEST = 19
_RANGE = 20


class ProcessPriority:
    """Lowers the priority of a worker's processes, and raises it again.

    It does nothing where the process may not raise the priority again.
    """

    def __init__(self) -> None:
        self._usual = os.getpriority(os.PRIO_PROCESS, 0)
        self._timer: threading.Timer | None = None

    def lower(self, seconds: float = LONGEST) -> None:
        """Lower the priority of this thread and of what it starts from now on, for so long at most."""
        if can_restore_priority(self._usual):
            os.setpriority(os.PRIO_PROCESS, 0, min(self._usual + _STEP, _NICEST))
            self._timer = threading.Timer(seconds, self._raise)
            self._timer.daemon = True
            self._timer.start()

    def restore(self) -> None:
        """Give this process, and all that it has started, the usual priority. Priorities are by thread."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._raise()

    def _raise(self) -> None:
        import psutil  # Most workers never have a lower priority.

        own = psutil.Process()
        for process in (own, *own.children(recursive=True)):
            with suppress(psutil.Error):
                for thread in process.threads():
                    with suppress(ProcessLookupError, PermissionError):
                        os.setpriority(os.PRIO_PROCESS, thread.id, self._usual)


def can_restore_priority(usual: int) -> bool:
    """Whether a process that has become nicer may go back."""
    limit = resource.getrlimit(resource.RLIMIT_NICE)[0]
    return os.geteuid() == 0 or limit == resource.RLIM_INFINITY or _RANGE - limit <= usual
