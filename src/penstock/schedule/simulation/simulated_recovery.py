"""Where backups of the simulated tasks are, and how long recovery takes from there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from penstock.schedule import backup_location
from penstock.schedule.backup_location.backup_problem import UNKNOWN_BANDWIDTH
from penstock.schedule.backup_location.location_methods import described_problem
from penstock.schedule.cluster_file import Description, TaskBackup
from penstock.schedule.placement_constraints import current_placement
from penstock.schedule.placement_model import ClusterSnapshot
from penstock.schedule.simulation.scenario import GIB, Backup


@dataclass(frozen=True)
class LostTask:
    """A task whose node is gone, and what was decided for that."""

    task: str
    at: float
    choice: backup_location.LocationChoice | None
    size: float
    """Bytes that are kept of it."""


@dataclass(frozen=True)
class Recovery:
    """A task that runs again."""

    task: str
    seconds: float
    whole: bool
    """Whether it continued with its data; else it restarted without."""


class Locations:
    """The backup locations of all tasks, decided again whenever tasks move, with few changes."""

    def __init__(self, backup: Backup) -> None:
        self._backup = backup
        self._decision: backup_location.LocationDecision | None = None
        self._sizes: dict[str, float] = {}

    def decide(self, snapshot: ClusterSnapshot) -> None:
        """Decide for the tasks that run."""
        problem = simulated_problem(snapshot, self._backup)
        self._sizes = {task.name: task.backup for task in problem.tasks}
        before = self._decision
        self._decision = (
            backup_location.solve(problem) if before is None else backup_location.resolve(problem, before)
        )

    def lost(self, tasks: Iterable[str], at: float) -> list[LostTask]:
        """Return what is known of tasks that were lost."""
        choices = {choice.task: choice for choice in self._decision.choices} if self._decision else {}
        return [LostTask(task, at, choices.get(task), self._sizes.get(task, 0.0)) for task in tasks]

    def recovered(self, lost: LostTask, node: str, at: float, snapshot: ClusterSnapshot) -> Recovery:
        """Return how long a lost task took that runs on a node again from now on."""
        waited = at - lost.at + self._backup.restart
        choice, nodes = lost.choice, snapshot.node_named
        if choice is None or choice.store not in nodes:
            return Recovery(lost.task, waited, whole=False)
        if node == choice.store:
            return Recovery(lost.task, waited, whole=True)
        if node == choice.redeploy:
            return Recovery(lost.task, waited + choice.seconds, whole=True)
        return Recovery(lost.task, waited + lost.size / _slowest(snapshot, choice.store, node), whole=True)


def pinned(snapshot: ClusterSnapshot, lost: Iterable[LostTask]) -> ClusterSnapshot:
    """Return the snapshot in which lost tasks may go to their predetermined nodes only."""
    where = {
        one.task: one.choice.redeploy
        for one in lost
        if one.choice is not None and one.choice.redeploy in snapshot.node_named
    }
    tasks = tuple(
        replace(task, nodes=(where[task.id],)) if task.id in where else task for task in snapshot.tasks
    )
    return replace(snapshot, tasks=tasks)


def simulated_problem(snapshot: ClusterSnapshot, backup: Backup) -> backup_location.LocationProblem:
    """Return the problem that the location controller has in a snapshot, for the tasks that run."""
    input_rate: dict[str, float] = defaultdict(float)
    for pair in snapshot.traffic:
        input_rate[pair.second] += pair.rate
    backups = {
        task.id: TaskBackup(
            backup.snapshot * task.memory / GIB, input_rate.get(task.id, backup.input_rate), backup.interval
        )
        for task in snapshot.tasks
    }
    described = Description(snapshot, dict.fromkeys(snapshot.node_named, inf), backups)
    return described_problem(described, current_placement(snapshot), backup.failures)


def _slowest(snapshot: ClusterSnapshot, start: str, end: str) -> float:
    """Return the bandwidth of the slowest link between two nodes."""
    first, last = snapshot.node_named[start], snapshot.node_named[end]
    limits = [first.bandwidth or UNKNOWN_BANDWIDTH, last.bandwidth or UNKNOWN_BANDWIDTH]
    if first.rack != last.rack:
        uplinks = {link.rack: link.bandwidth for link in snapshot.links}
        limits += [uplinks.get(first.rack, inf), uplinks.get(last.rack, inf)]
    return min(limits)
