"""The scenarios that come with Penstock, one a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.schedule.model import Link, Node
from penstock.schedule.simulation.scenario import GIB, Backup, Failures, Load, Scenario
from penstock.schedule.simulation.topologies import TOPOLOGIES

GIGABIT = 125e6


def speedstream() -> Scenario:
    """SpeedStream's comparison (V.D): five nodes, a job every 20 s, a sample every 5 s, for five minutes.

    The nodes are alike, three at one switch and two at another. Jobs run on, so that the cluster fills; a job
    that would take more than 95 % of it waits outside.
    """
    nodes = tuple(
        Node(f"node-{number}", 10, 20 * GIB, GIGABIT, "switch-a" if number <= 3 else "switch-b")
        for number in range(1, 6)
    )
    return Scenario("speedstream", nodes, TOPOLOGIES, duration=300, submit_every=20, fill=0.95)


def failures() -> Scenario:
    """A hundred nodes of three sizes in five racks: jobs come and end, loads change, nodes fail and return.

    Backups are kept for the loss of one node at a time.
    """
    sizes = ((2, 4), (4, 8), (8, 16))
    nodes = tuple(
        Node(
            f"node-{number:03}",
            sizes[number % 3][0],
            sizes[number % 3][1] * GIB,
            GIGABIT,
            f"rack-{number % 5}",
        )
        for number in range(100)
    )
    return Scenario(
        "failures",
        nodes,
        TOPOLOGIES,
        duration=900,
        submit_every=10,
        sample_every=15,
        links=tuple(Link(f"rack-{number}", 10 * GIGABIT) for number in range(5)),
        fill=0.8,
        job_seconds=600,
        rebalance_every=300,
        overloaded_above=0.9,
        load=Load(every=30),
        failures=Failures(between=45, repair=180),
        backup=Backup(input_rate=1e6),
    )


SCENARIOS: Mapping[str, Callable[[], Scenario]] = {"speedstream": speedstream, "failures": failures}
