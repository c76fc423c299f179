"""The hard rules of every placement, in one ordered table, and the tasks that must be placed.

Those are tasks that run nowhere or break a rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from penstock.schedule.placement_model import OVERLOADED, ClusterSnapshot, Matrix, Node, Task

TOLERANCE = 1e-6
"""Of a core: sums of fractions of cores are not exact."""


@dataclass
class Usage:
    """What the tasks on one node take."""

    cpu: float = 0.0
    memory: int = 0
    apart: Counter[str] = field(default_factory=Counter)

    def add(self, task: Task, sign: int = 1) -> None:
        """Note that a task is there, or, with -1, that it is there no more."""
        self.cpu += sign * task.cpu
        self.memory += sign * task.memory
        if task.apart:
            self.apart[task.apart] += sign


@dataclass(frozen=True)
class Violation:
    """A rule that a matrix breaks."""

    rule: str
    task: str
    node: str
    reason: str

    def __str__(self) -> str:
        return f"{self.task} on {self.node}: {self.reason}"


@dataclass(frozen=True)
class Case:
    """May this task run on this node, besides the others there?"""

    task: Task
    node: Node
    others: Usage
    snapshot: ClusterSnapshot


Rule = Callable[[Case], str | None]
"""Why the node cannot take the task; None if it can."""


def pins(case: Case) -> str | None:
    """Only nodes that the task may use."""
    if case.task.nodes and case.node.name not in case.task.nodes:
        return f"the task is for {', '.join(case.task.nodes)} only"
    return None


def labels(case: Case) -> str | None:
    """Only nodes with the labels that the task asks for."""
    for label, value in sorted(case.task.labels.items()):
        if case.node.labels.get(label) != value:
            return f"it lacks the label {label}={value}"
    return None


def replicas(case: Case) -> str | None:
    """No node that would be lost together with another replica of the job."""
    if case.node.name in case.task.avoid:
        return (
            "it is reserved for another replica of the job (same node, same rack, or that replica's share "
            "of the nodes)"
        )
    return None


def status(case: Case) -> str | None:
    """An OVERLOADED node keeps its tasks and gets no new ones (load-aware dispatch, III.A)."""
    if case.task.current != case.node.name and case.snapshot.status(case.node) == OVERLOADED:
        return (
            f"it is OVERLOADED: its load is {case.node.load:.2f}, above {case.snapshot.overloaded_above:.2f}"
        )
    return None


def anti_affinity(case: Case) -> str | None:
    """No two tasks of a group on one case.node."""
    if case.task.apart and case.others.apart[case.task.apart] > 0:
        return f"it has a task of the group {case.task.apart!r}, whose tasks run apart"
    return None


def cpu(case: Case) -> str | None:
    """Enough cores."""
    free = case.node.cores - case.others.cpu
    if case.task.cpu > free + TOLERANCE:
        return f"{case.task.cpu:g} cores asked for, {max(free, 0):g} of {case.node.cores:g} free"
    return None


def memory(case: Case) -> str | None:
    """Enough memory."""
    free = case.node.memory - case.others.memory
    if case.task.memory > free:
        left = f"{max(free, 0) >> 20} of {case.node.memory >> 20} MiB free"
        return f"{case.task.memory >> 20} MiB asked for, {left}"
    return None


RULES: Mapping[str, Rule] = {
    "pins": pins,
    "labels": labels,
    "replicas": replicas,
    "status": status,
    "anti-affinity": anti_affinity,
    "cpu": cpu,
    "memory": memory,
}
"""In this order: what can never change comes first, because its reason says most."""


def allowed_nodes(task: Task, nodes: Iterable[Node]) -> tuple[str, ...] | None:
    """Return the nodes that pins, labels and replicas allow for a task, however full they are; None if all.

    >>> nodes = [Node("a", 4, 1024, labels={"disk": "ssd"}), Node("b", 4, 1024)]
    >>> allowed_nodes(Task("t", "job", labels={"disk": "ssd"}), nodes), allowed_nodes(Task("t", "job"), nodes)
    (('a',), None)
    """
    if not task.labels and not task.nodes and not task.avoid:
        return None
    cases = (Case(task, node, Usage(), ClusterSnapshot((), ())) for node in nodes)
    rules = (pins, labels, replicas)
    return tuple(case.node.name for case in cases if all(rule(case) is None for rule in rules))


def usages(matrix: Matrix, snapshot: ClusterSnapshot) -> dict[str, Usage]:
    """Return the used resources of each node of the snapshot."""
    used = {node.name: Usage() for node in snapshot.nodes}
    named = snapshot.task_named
    for task_id, node in matrix.places.items():
        task, usage = named.get(task_id), used.get(node)
        if task is not None and usage is not None:
            usage.cpu += task.cpu
            usage.memory += task.memory
            if task.apart:
                usage.apart[task.apart] += 1
    return used


def obstacle(task: Task, node: Node, others: Usage, snapshot: ClusterSnapshot) -> tuple[str, str] | None:
    """Return the first rule that keeps a task off a node, and its reason; None if the node can take it."""
    case = Case(task, node, others, snapshot)
    for name, rule in RULES.items():
        reason = rule(case)
        if reason is not None:
            return name, reason
    return None


def find_violations(matrix: Matrix, snapshot: ClusterSnapshot) -> list[Violation]:
    """Return every task that is where it must not be, with the rule that it breaks, sorted by task.

    A node that is too full is told once for each of its tasks: any of them could go.

    >>> snapshot = ClusterSnapshot((Node("a", 1, 1024),), (Task("t", "job", cpu=2),))
    >>> [str(violation) for violation in find_violations(Matrix({"t": "a"}), snapshot)]
    ['t on a: 2 cores asked for, 1 of 1 free']
    """
    found: list[Violation] = []
    nodes, tasks, used = snapshot.node_named, snapshot.task_named, usages(matrix, snapshot)
    full = {
        name
        for name, usage in used.items()
        if usage.cpu > nodes[name].cores + TOLERANCE or usage.memory > nodes[name].memory
    }
    busy = {node.name for node in snapshot.nodes if snapshot.status(node) == OVERLOADED}
    for task_id, name in matrix.places.items():
        task, node = tasks.get(task_id), nodes.get(name)
        if task is None or node is None:
            what = f"there is no task {task_id!r}" if task is None else f"there is no node {name!r}"
            found.append(Violation("unknown", task_id, name, what))
        elif task.labels or task.nodes or task.apart or task.avoid or name in full or name in busy:
            usage = used[name]
            usage.add(task, -1)
            reason = obstacle(task, node, usage, snapshot)
            usage.add(task)
            if reason is not None:
                found.append(Violation(reason[0], task_id, name, reason[1]))
    return sorted(found, key=lambda violation: violation.task)


_CROWDED = ("anti-affinity", "cpu", "memory")


def current_placement(snapshot: ClusterSnapshot) -> Matrix:
    """Return the placement as it is."""
    return Matrix({task.id: task.current for task in snapshot.tasks if task.current is not None})


def tasks_to_place(snapshot: ClusterSnapshot) -> tuple[Task, ...]:
    """Return the tasks that must be placed, sorted; all others can stay.

    Of a node that is too full the largest tasks leave, so that few do.

    >>> from penstock.schedule.placement_model import Node
    >>> here = (Task("a", "job", cpu=1, current="n"), Task("b", "job", cpu=2, current="n"))
    >>> there = Task("c", "job", current="gone")
    >>> [task.id for task in tasks_to_place(ClusterSnapshot((Node("n", 2, 1024),), (*here, there)))]
    ['b', 'c']
    """
    now = current_placement(snapshot)
    leaving = {task.id: task for task in snapshot.tasks if task.current is None}
    crowded: dict[str, list[Task]] = {}
    for violation in find_violations(now, snapshot):
        task = snapshot.task_named[violation.task]
        if violation.rule in _CROWDED:
            crowded.setdefault(violation.node, []).append(task)
        else:
            leaving[task.id] = task
    if crowded:
        used = usages(Matrix({t: node for t, node in now.places.items() if t not in leaving}), snapshot)
        for name, tasks in sorted(crowded.items()):
            node = snapshot.node_named[name]
            for task in sorted(tasks, key=lambda task: (-task.cpu, -task.memory, task.id)):
                used[name].add(task, -1)
                if obstacle(task, node, used[name], snapshot) is None:
                    used[name].add(task)
                else:
                    leaving[task.id] = task
    return tuple(leaving[name] for name in sorted(leaving))
