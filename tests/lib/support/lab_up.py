"""``penstock`` for tests: nodes that its ``up`` starts have the supervisors of :mod:`support.lab_supervisor`.

``lab_up.py LAB up OPTIONS``, with LAB as JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.cli import main
from penstock.local import cluster_layout

_SUPERVISOR = str(Path(__file__).with_name("lab_supervisor.py"))
_command = cluster_layout.penstock_command


def _in_lab(lab: str, *arguments: str) -> tuple[str, ...]:
    if arguments[0] != cluster_layout.SUPERVISOR:
        return _command(*arguments)
    return (sys.executable, _SUPERVISOR, lab, *arguments)


if __name__ == "__main__":
    given = sys.argv.pop(1)
    cluster_layout.penstock_command = lambda *arguments: _in_lab(given, *arguments)
    main.run()
