"""Deciding where backups go, against the exact model in CBC and HiGHS: Figs. 5 and 6 of Iijima et al.

Fig. 5 has 10 to 120 tasks on 30 servers, Fig. 6 has 30 tasks on 30 to 60 servers. The paper does not describe
its servers and tasks; ours are `edge_cluster`: *roomy* ones, where no data need be moved at all, and *tight*
ones, where half of the servers lack CPU and the others storage, so that some must be.

What is compared is processor time, which does not depend on what else the machine does. CBC's is that of its
own process: writing the model for it and reading its answer is not counted. It runs until it has proved the
optimum or its limit is over; then its time is at least that, and the optimum is not known by it. The paper
gives CBC's time until its first solution: that is measured, too. Here it is no fair measure, because a first
solution may leave tasks without a place, which the paper's model does not know.
"""

from __future__ import annotations

import json
import random
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.sizes import Sizes
from benchmarks.table import Row
from penstock.schedule.backup_location import (
    LocationDecision,
    LocationProblem,
    ProtectedTask,
    Server,
    Uplink,
    algorithm1,
    resolve,
    solve,
    verify,
)
from penstock.schedule.backup_location.search.exact_location import Solution, solve_cbc, solve_highs

MEGABYTE = 1e6
RACK = 10
AT_LEAST_FASTER = 1000.0
AT_MOST_WORSE = 1.05
LARGE_SECONDS = 2.0
LOST_SERVER_SECONDS = 2.0
RESULTS = Path(__file__).parent / "results" / "backup_location.json"


def edge_cluster(
    servers: int, tasks: int, seed: int, *, tight: bool = False, rack: int = RACK
) -> LocationProblem:
    """Return servers as different as those at the edge are: some lack CPU, some storage, some bandwidth.

    What the servers have grows with the tasks on each, so that large problems are as tight as small ones.
    """
    source = random.Random(seed)
    crowd = max(1.0, tasks / servers)

    def server(number: int) -> Server:
        free, storage = source.uniform(0.0, 4.0) * crowd**0.5, source.uniform(20, 160)
        if tight and source.random() < 0.5:
            free, storage = source.uniform(2.0, 5.0) * crowd**0.5, source.uniform(0, 50)
        elif tight:
            free, storage = source.uniform(0.0, 1.0), source.uniform(80, 320)
        return Server(
            f"server-{number:04d}",
            cpu=16.0,
            cpu_in_use=max(0.0, 16.0 - free),
            storage=storage * MEGABYTE * crowd,
            bandwidth=source.choice((12.5, 25.0, 125.0)) * MEGABYTE * crowd,
            rack=f"rack-{number // rack:03d}",
        )

    def task(number: int) -> ProtectedTask:
        return ProtectedTask(
            f"task-{number:05d}",
            f"server-{source.randrange(servers):04d}",
            cpu=source.uniform(0.5, 2.0),
            snapshot=source.uniform(5, 40) * MEGABYTE,
            input_rate=source.uniform(0.05, 0.5) * MEGABYTE,
            interval=source.choice((20.0, 30.0, 60.0)),
            latency=source.uniform(0.01, 1.0),
        )

    racks = (servers + rack - 1) // rack
    return LocationProblem(
        tuple(server(number) for number in range(servers)),
        tuple(task(number) for number in range(tasks)),
        tuple(Uplink(f"rack-{number:03d}", 125.0 * MEGABYTE * crowd) for number in range(racks)),
    )


@dataclass(frozen=True)
class Solved:
    """What a solver came to on one problem."""

    seconds: float
    """Of the processor."""
    total: float | None
    """Of the objective; None if it found nothing."""
    proved: bool


@dataclass(frozen=True)
class Point:
    """One problem of a figure, and what all methods made of it."""

    servers: int
    tasks: int
    tight: bool
    limit: float
    ours: float
    ours_runs: tuple[float, ...]
    ours_total: float
    unprotected: int
    paper: float
    """Algorithm 1."""
    paper_total: float
    cbc: Solved
    cbc_first: Solved
    highs: Solved

    @property
    def optimum(self) -> float | None:
        """Return the least cost, if a solver proved it."""
        proved = [s.total for s in (self.cbc, self.highs) if s.proved and s.total is not None]
        return min(proved, default=None)

    @property
    def worse(self) -> float | None:
        """Return our cost by the least."""
        if self.optimum is None:
            return None
        if self.optimum > 1e-6:
            return self.ours_total / self.optimum
        return 1.0 if self.ours_total <= 1e-6 else float("inf")


def run(sizes: Sizes, work: Path) -> list[Row]:  # noqa: ARG001 - every benchmark is given a folder
    """Measure all sizes of both figures, and a large cluster."""
    limit, rounds = (2.0, 3) if sizes.quick else (60.0, 10)
    points = [
        measure(servers, tasks, limit, rounds, tight=tight)
        for servers, tasks in figures(quick=sizes.quick)
        for tight in (False, True)
    ]
    if not sizes.quick:
        write_points(points)
    return [row for point in points for row in rows_of(point)] + large_rows(quick=sizes.quick)


def figures(*, quick: bool) -> Iterator[tuple[int, int]]:
    """Return the servers and tasks of both figures."""
    if quick:
        yield from ((30, 10), (30, 30))
        return
    for tasks in range(10, 121, 10):
        yield 30, tasks
    for servers in range(36, 61, 6):
        yield servers, 30


def measure(servers: int, tasks: int, limit: float, rounds: int, *, tight: bool) -> Point:
    """Let all methods solve one problem; the solvers for so many seconds at most."""
    problem = figure_problem(servers, tasks, tight=tight)
    return Point(
        servers,
        tasks,
        tight,
        limit,
        **_ours(problem, rounds),
        cbc=_solved(problem, limit, _children_seconds, solve_cbc),
        cbc_first=_solved(problem, limit, _children_seconds, _first_of_cbc),
        highs=_solved(problem, limit, time.process_time, solve_highs),
    )


def measure_again(point: Point, rounds: int) -> Point:
    """Let our methods solve a problem again; what the solvers came to does not change by what we do."""
    return replace(point, **_ours(figure_problem(point.servers, point.tasks, tight=point.tight), rounds))


def figure_problem(servers: int, tasks: int, *, tight: bool) -> LocationProblem:
    """Return the problem of a figure that has so many servers and tasks."""
    return edge_cluster(servers, tasks, seed=servers * 1_000 + tasks, tight=tight)


def _ours(problem: LocationProblem, rounds: int) -> dict[str, Any]:
    """Return the fields of a point that tell of our methods."""
    runs = [_measure(problem, solve) for _ in range(rounds)]
    papers = [_measure(problem, algorithm1) for _ in range(rounds)]
    ours = runs[0][1]
    return {
        "ours": median(seconds for seconds, _ in runs),
        "ours_runs": tuple(seconds for seconds, _ in runs),
        "ours_total": ours.objective.total,
        "unprotected": len(ours.unprotected),
        "paper": median(seconds for seconds, _ in papers),
        "paper_total": papers[0][1].objective.total,
    }


def write_points(points: list[Point]) -> None:
    """Write what the figures are drawn from."""
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(point) for point in points], indent=1) + "\n")


def read_points() -> list[Point]:
    """Read what was measured last."""
    solvers = ("cbc", "cbc_first", "highs")
    return [
        Point(**{**fields, **{name: Solved(**fields[name]) for name in solvers}})
        for fields in json.loads(RESULTS.read_text())
    ]


def rows_of(point: Point) -> list[Row]:
    """Return the lines of the table for a problem."""
    kind = "tight" if point.tight else "roomy"
    name = f"backup location, {point.tasks} tasks on {point.servers} {kind} servers"
    rows = []
    for solver, solved in (("CBC", point.cbc), ("HiGHS", point.highs)):
        ratio = solved.seconds / point.ours
        state = "proved" if solved.proved else f"stopped after {point.limit:g} s"
        has_target = solver == "CBC" and point.tasks >= 30
        met: bool | None = None
        if has_target and (ratio >= AT_LEAST_FASTER or solved.proved):
            # Below the target, a solver that was stopped decides nothing: it might have taken much longer.
            met = ratio >= AT_LEAST_FASTER
        first = point.cbc_first
        rows.append(
            Row(
                name,
                solver,
                "ms, times faster",
                point.ours * 1000,
                solved.seconds * 1000,
                ratio,
                f"at least {AT_LEAST_FASTER:g}" if has_target else "",
                met,
                f"{solver} {state} at {_total(solved.total)}; ours {point.ours_total:.3f}, "
                f"{point.unprotected} tasks without a place; Algorithm 1 {point.paper_total:.3f} in "
                f"{point.paper * 1000:.1f} ms; CBC's first solution {_total(first.total)} "
                f"after {first.seconds:.1f} s",
                ours_runs=tuple(seconds * 1000 for seconds in point.ours_runs),
            )
        )
    if point.worse is not None:
        near, target = point.worse <= AT_MOST_WORSE, f"at most {AT_MOST_WORSE}"
        rows.append(
            Row(
                name,
                "the optimum",
                "s of transfer",
                point.ours_total,
                point.optimum,
                point.worse,
                target,
                near,
            )
        )
    return rows


def large_rows(*, quick: bool) -> list[Row]:
    """Measure large clusters, roomy and tight."""
    servers, tasks, rounds = (100, 1_000, 1) if quick else (1_000, 10_000, 5)
    return [row for tight in (False, True) for row in _large(servers, tasks, rounds, tight=tight)]


def _large(servers: int, tasks: int, rounds: int, *, tight: bool) -> list[Row]:
    problem = edge_cluster(servers, tasks, seed=1, rack=25, tight=tight)
    name = f"backup location, {tasks} tasks on {servers} {'tight ' if tight else ''}servers"
    runs = [_measure(problem, solve) for _ in range(rounds)]
    decision = runs[0][1]
    seconds = median(seconds for seconds, _ in runs)
    left, transfer = len(decision.unprotected), decision.objective.transfer_seconds
    note = f"{left} tasks without a place, {transfer:.1f} s of transfer"
    whole = Row(
        name, "", "s", seconds, None, None, f"at most {LARGE_SECONDS:g}", seconds <= LARGE_SECONDS, note,
        ours_runs=tuple(seconds for seconds, _ in runs),
    )  # fmt: skip
    lost = problem.servers[0].name
    after = LocationProblem(
        problem.servers[1:],
        tuple(task for task in problem.tasks if task.server != lost),
        problem.uplinks,
        rates=problem.rates,
    )
    again, _ = _measure(after, lambda changed: resolve(changed, decision))
    met = again <= LOST_SERVER_SECONDS
    target = f"at most {LOST_SERVER_SECONDS:g}"
    return [whole, Row(f"{name}, one lost", "", "s", again, None, None, target, met)]


def _measure(
    problem: LocationProblem, method: Callable[[LocationProblem], LocationDecision]
) -> tuple[float, LocationDecision]:
    started = time.process_time()
    decision = method(problem)
    seconds = time.process_time() - started
    wrong = verify(problem, decision)
    assert not wrong, wrong[0]
    return seconds, decision


def _solved(
    problem: LocationProblem, limit: float, clock: Callable[[], float], solver: Callable[..., Solution]
) -> Solved:
    started = clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        decision = solver(problem, limit=limit).decision
    seconds = clock() - started
    if decision is None or verify(problem, decision):
        # What CBC has when it is stopped keeps the constraints only within its tolerances, and not always.
        return Solved(seconds, None, False)
    return Solved(seconds, decision.objective.total, decision.optimal)


def _first_of_cbc(problem: LocationProblem, *, limit: float) -> Solution:
    return solve_cbc(problem, limit=limit, first=True)


def _children_seconds() -> float:
    """Return the processor time of the processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _total(found: float | None) -> str:
    return "nothing" if found is None else f"{found:.3f}"
