"""Random clusters to place tasks on."""

from __future__ import annotations

from random import Random

from penstock.schedule.placement_model import ClusterSnapshot, Link, Node, Task, Traffic

GIB = 1 << 30


def random_cluster(seed: int, *, most_tasks: int = 9, most_nodes: int = 4) -> ClusterSnapshot:
    """Return a small cluster of all kinds of tasks, of which some run already, some where they must not."""
    draw = Random(seed)
    count = draw.randint(1, most_nodes)
    nodes = tuple(
        Node(
            f"n{number}",
            draw.choice([2, 4, 8, 16]),
            draw.choice([4, 8, 32]) * GIB,
            rack=f"r{draw.randrange(2)}",
            labels={"disk": "fast"} if draw.random() < 0.5 else {},
            load=draw.choice([0.0, 0.3, 0.95]),
        )
        for number in range(count)
    )
    tasks = tuple(
        Task(
            f"t{number:02}",
            f"j{number % 3}",
            cpu=draw.choice([0.5, 1, 2, 3]),
            memory=draw.choice([1, 2, 5]) * GIB,
            labels={"disk": "fast"} if draw.random() < 0.2 else {},
            nodes=(f"n{draw.randrange(count)}",) if draw.random() < 0.15 else (),
            apart="spread" if draw.random() < 0.2 else "",
            current=draw.choice([None, "gone", f"n{draw.randrange(count)}"]),
        )
        for number in range(draw.randint(1, most_tasks))
    )
    traffic = tuple(
        Traffic(first.id, second.id, draw.random() * 1e6)
        for first in tasks
        for second in tasks
        if first.id < second.id and draw.random() < 0.3
    )
    return ClusterSnapshot(nodes, tasks, traffic, (Link("r0", 1e9), Link("r1", 5e8)))


def roomy_cluster(seed: int) -> ClusterSnapshot:
    """Return a tiny cluster with room for all, for which the best placement is quickly found."""
    draw = Random(seed)
    nodes = tuple(
        Node(f"n{number}", draw.choice([8, 16]), draw.choice([16, 32]) * GIB, rack=f"r{number % 2}")
        for number in range(3)
    )
    tasks = tuple(
        Task(f"t{number}", "job", cpu=draw.choice([1, 2, 3]), memory=draw.choice([1, 2, 4]) * GIB)
        for number in range(draw.randint(4, 6))
    )
    pairs = ((one, two) for one in tasks for two in tasks if one.id < two.id)
    traffic = tuple(Traffic(one.id, two.id, draw.random() * 1e6) for one, two in pairs if draw.random() < 0.3)
    return ClusterSnapshot(nodes, tasks, traffic)
