"""The exact model with CBC, which runs as a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.schedule.backup_location import LocationProblem, ProtectedTask, Server, verify
from penstock.schedule.backup_location.search.exact_location import solve_cbc, solve_highs


# PuLP tells of its version 4, which is not allowed here yet.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("failures", [1, 2])
def test_cbc_and_highs_find_the_same_optimum(failures: int) -> None:
    # b stores and has CPU for one; c and d run and store nothing: see the hand-made cases of the unit tests.
    servers = (
        Server("a", cpu=4, cpu_in_use=4, bandwidth=100, storage=0),
        Server("b", cpu=4, cpu_in_use=3, bandwidth=100),
        Server("c", cpu=4, cpu_in_use=2, bandwidth=100, storage=0, rack="x"),
        Server("d", cpu=4, cpu_in_use=2, bandwidth=50, storage=0, rack="x"),
    )
    tasks = tuple(
        ProtectedTask(f"t{number}", server, cpu=1, snapshot=100, input_rate=2)
        for number, server in enumerate(("a", "a", "a", "c", "d"))
    )
    problem = LocationProblem(servers, tasks, failures=failures, rates=(60, 30, 10))
    cbc, highs = solve_cbc(problem, limit=120), solve_highs(problem, limit=120)
    assert cbc.decision is not None, cbc.status
    assert highs.decision is not None, highs.status
    assert cbc.decision.optimal
    assert verify(problem, cbc.decision) == ()
    assert cbc.decision.objective.total == pytest.approx(highs.decision.objective.total)
    assert cbc.decision.objective.total > 0


def test_deciding_does_not_load_the_solvers() -> None:
    code = (
        "import sys, penstock.schedule.backup_location;"
        "print(*({'numpy', 'scipy', 'pulp'} & set(sys.modules)))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert loaded.stdout.split() == []
