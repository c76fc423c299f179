"""Backup location: where a task's backup is stored and the task is redeployed, to move little data.

The location controller of Iijima et al., "Deciding Backup Location Methods for Distributed Stream Processing
System" (here *the paper*), whose equation numbers the docstrings name.

- `model`: servers, tasks and the decision, as frozen data.
- `network`: the edges of the network and the ways through them.
- `ledger`: what is left of CPU, storage and bandwidth while a decision is being made.
- `algorithm1`: the paper's algorithm.
- `formulation`, `exact`: the exact model, and the solvers CBC and HiGHS that solve it.
- `improved`: the algorithm Penstock uses: several failures at once, few changes, near the optimum.
- `candidates`, `trial`, `repair`, `chains`, `insist`, `ruin`: its parts, from a task's first place to
  the last change.
- `bounds`: what no decision can be below.
- `verify`: checks a decision against every constraint, whoever made it.
"""

from penstock.schedule.backup_location.backup_problem import (
    LocationChoice,
    LocationDecision,
    LocationProblem,
    Objective,
    ProblemError,
    ProtectedTask,
    Server,
    Unprotected,
    Uplink,
    changes,
)
from penstock.schedule.backup_location.location_check import LocationViolation, verify
from penstock.schedule.backup_location.search.iijima_algorithm import algorithm1
from penstock.schedule.backup_location.search.location_search import resolve, solve

__all__ = [
    "LocationChoice",
    "LocationDecision",
    "LocationProblem",
    "LocationViolation",
    "Objective",
    "ProblemError",
    "ProtectedTask",
    "Server",
    "Unprotected",
    "Uplink",
    "algorithm1",
    "changes",
    "resolve",
    "solve",
    "verify",
]
