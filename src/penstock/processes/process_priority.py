"""Lowers the priority of a worker that is not needed yet, so that it does not slow down others on its
machine.

Starting Spark uses all processors for some seconds. A replica that joins while others run is not urgent, and
would take that time from other workers on the machine.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress

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
        self._gives_way = False

    def lower(self) -> None:
        """Have this thread, and whatever it starts from now on, give way."""
        if can_restore_priority(self._usual):
            os.setpriority(os.PRIO_PROCESS, 0, min(self._usual + _STEP, _NICEST))
            self._gives_way = True

    def restore(self) -> None:
        """Have this process, and all that were started by it, be as they were. Priorities are by thread."""
        if not self._gives_way:
            return
        self._gives_way = False
        import psutil  # Most workers never give way.

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
