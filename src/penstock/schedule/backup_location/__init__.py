"""Backup location: where a task's backup is stored and the task is redeployed, to move little data.

The location controller of Iijima et al., "Deciding Backup Location Methods for Distributed Stream Processing
System" (here *the paper*), whose equation numbers the docstrings name.

- `backup_problem`: servers, tasks, the decision and the network between servers, as frozen data.
- `location_check`: checks a decision of any method against every constraint.
- `location_methods`: the methods of `penstock place`, and the problem of a described cluster.
- `location_controller`: the problem of a running cluster.
- `search`: the algorithm Penstock uses (`location_search` and its parts), the paper's algorithm
  (`iijima_algorithm`), the exact model (`exact_location`) and the lower bounds of the cost.
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
