"""The command line of Penstock, on a machine that is never busy: ``idle_supervisor.py supervisor OPTIONS``.

All nodes of a test are on one machine, and each looks at it at moments of its own. When the machine is busy,
some of them call themselves overloaded and get nothing new, and others do not.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from penstock.cli import main, supervisor, supervisor_process
from penstock.daemons.machine import Machine, Sample

_look = Machine.sample


def _idle(self: Machine, now: float) -> Sample:
    return replace(_look(self, now), cpu=0.0, memory_used=0)


def _stay(content: dict[str, object]) -> None:
    """Go on in this process: another one would look at the machine as it is."""
    sys.argv[1:] = [json.dumps(content)]
    supervisor_process.main()


if __name__ == "__main__":
    Machine.sample = _idle  # type: ignore[method-assign]
    supervisor._become = _stay
    main.run()
