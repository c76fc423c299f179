"""Which tasks must be placed: those that run nowhere, and those that are where they must not be."""

from __future__ import annotations

from penstock.schedule.constraints import find_violations, obstacle, usages
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import ClusterSnapshot, Task

_CROWDED = ("anti-affinity", "cpu", "memory")


def current_placement(snapshot: ClusterSnapshot) -> Matrix:
    """Return the placement as it is."""
    return Matrix({task.id: task.current for task in snapshot.tasks if task.current is not None})


def tasks_to_place(snapshot: ClusterSnapshot) -> tuple[Task, ...]:
    """Return the tasks that must be placed, sorted; all others can stay.

    Of a node that is too full the largest tasks leave, so that few do.

    >>> from penstock.schedule.model import Node
    >>> here = (Task("a", "job", cpu=1, current="n"), Task("b", "job", cpu=2, current="n"))
    >>> there = Task("c", "job", current="gone")
    >>> [task.id for task in needed(ClusterSnapshot((Node("n", 2, 1024),), (*here, there)))]
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
