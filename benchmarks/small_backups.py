"""How near the optimum backup location is on small problems of five kinds of tightness, by HiGHS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.backup_location import AT_MOST_WORSE, edge_cluster
from benchmarks.sizes import Sizes
from benchmarks.table import Row
from penstock.schedule.backup_location import LocationProblem, solve, verify
from penstock.schedule.backup_location.search.exact_location import solve_highs

SIZES = ((4, 5), (5, 7), (6, 10), (8, 12), (10, 14))
"""Servers and tasks."""
SECONDS = 15.0


def run(sizes: Sizes, work: Path) -> list[Row]:  # noqa: ARG001 - every benchmark is given a folder
    """Compare with the optimum, wherever HiGHS proves it in its time."""
    rounds = 1 if sizes.quick else 8
    rows = []
    for kind in KINDS:
        problems = list(small_problems(kind, rounds, SIZES[:2] if sizes.quick else SIZES))
        ratios = [ratio for problem in problems if (ratio := ratio_to_best(problem)) is not None]
        far = sum(ratio > AT_MOST_WORSE for ratio in ratios)
        rows.append(
            Row(
                f"backup location, small {kind} problems, cost by the least",
                "the optimum",
                "worst, median",
                max(ratios, default=1.0),
                median(ratios) if ratios else 1.0,
                None,
                f"at most {AT_MOST_WORSE:g}",
                far == 0,
                f"{far} of {len(ratios)} are above the target; HiGHS proved {len(ratios)} of {len(problems)} "
                f"in {SECONDS:g} s each",
                ours_runs=tuple(ratios),
            )
        )
    return rows


def small_problems(kind: str, rounds: int, sizes: tuple[tuple[int, int], ...]) -> Iterator[LocationProblem]:
    """Return problems of a kind, the same each time."""
    for seed in range(rounds):
        for servers, tasks in sizes:
            yield KINDS[kind](servers, tasks, seed)


def ratio_to_best(problem: LocationProblem) -> float | None:
    """Return our cost by the least one; None if that is not known."""
    exact = solve_highs(problem, limit=SECONDS).decision
    ours = solve(problem)
    assert verify(problem, ours) == ()
    if exact is None or not exact.optimal:
        return None
    best, mine = exact.objective.total, ours.objective.total
    if best <= 1e-6:
        return 1.0 if mine <= 1e-6 else float("inf")
    return mine / best


def _tight(servers: int, tasks: int, seed: int) -> LocationProblem:
    return edge_cluster(servers, tasks, seed, tight=True, rack=max(2, servers // 3))


def _roomy(servers: int, tasks: int, seed: int) -> LocationProblem:
    return edge_cluster(servers, tasks, seed, rack=max(2, servers // 3))


def _scaled(problem: LocationProblem, cpu: float, storage: float, bandwidth: float) -> LocationProblem:
    """Return a problem with other parts of the free CPU, of the storage and of all bandwidth."""
    servers = tuple(
        replace(
            server,
            cpu_in_use=max(0.0, server.cpu - server.free_cpu * cpu),
            storage=server.storage * storage,
            bandwidth=server.bandwidth * bandwidth,
        )
        for server in problem.servers
    )
    uplinks = tuple(replace(uplink, bandwidth=uplink.bandwidth * bandwidth) for uplink in problem.uplinks)
    return LocationProblem(servers, problem.tasks, uplinks, problem.failures)


KINDS: dict[str, Callable[[int, int, int], LocationProblem]] = {
    "tight": _tight,
    "tighter": lambda servers, tasks, seed: _scaled(_tight(servers, tasks, seed), 0.7, 0.7, 0.5),
    "narrow": lambda servers, tasks, seed: _scaled(_tight(servers, tasks, seed), 1.0, 1.0, 0.15),
    "full": lambda servers, tasks, seed: _scaled(_roomy(servers, tasks, seed), 0.4, 0.3, 0.3),
    "two failures": lambda servers, tasks, seed: replace(_tight(servers, tasks, seed), failures=2),
}
"""Tight: half of the servers lack CPU, the others storage. Narrow: bandwidth is what is scarce."""
