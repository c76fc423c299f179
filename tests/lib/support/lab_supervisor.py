"""The supervisor of a cluster of tests: ``lab_supervisor.py LAB supervisor OPTIONS``, with LAB as JSON.

It is Penstock's own, made in this process by test code, which may say some things that no user can:

- ``idle``: the machine is never busy. All nodes of a test are on one machine, and each looks at it at moments
  of its own; when it is busy, some of them would call themselves overloaded and get nothing new.
- ``engine``: ``local`` for workers without Spark.
- ``heartbeat``: after how many seconds without a sign of life a worker counts as hung.
- ``starting``: after how many seconds a worker that gets on with nothing counts as hung in its start.
- ``window``: after how many seconds of a worker the failures of those before it are forgotten. A job whose
  workers a test kills again and again would be given up otherwise.
- ``longest_retry``: the longest back-off between two starts, in seconds.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

from penstock.cli import main, supervisor, supervisor_process
from penstock.cluster.failure_policy import FailurePolicy
from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.worker_supervision import SupervisionTimeouts
from penstock.supervisor.machine_load import MachineSample, MachineSampler
from penstock.supervisor.supervisor import SupervisorSettings

_look = MachineSampler.sample


def _idle(self: MachineSampler, now: float) -> MachineSample:
    return replace(_look(self, now), cpu=0.0, memory_used=0)


def _run(lab: dict[str, Any], content: dict[str, Any]) -> None:
    """Go on in this process: another one would know nothing of the lab."""
    given = {name: lab[name] for name in ("heartbeat", "starting") if name in lab}
    policy = {name: lab[name] for name in ("window", "longest_retry") if name in lab}
    patience = SupervisionTimeouts(failures=FailurePolicy(**policy), **given)
    settings = SupervisorSettings(patience=patience)
    supervisor_process.run(
        NodeInfo(**content["info"]),
        supervisor_process.SupervisorOptions(**content["options"]),
        worker_module="penstock.testing.local_engine_worker" if lab["engine"] == "local" else None,
        settings=settings,
    )


if __name__ == "__main__":
    given = json.loads(sys.argv.pop(1))
    if given["idle"]:
        MachineSampler.sample = _idle  # type: ignore[method-assign]
    supervisor._exec_supervisor = lambda content: _run(given, content)
    main.run()
