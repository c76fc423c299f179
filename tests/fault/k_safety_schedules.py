"""Random schedules of deaths, pauses and cuts that happen to the replicas of a job."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from clusters import Feeder, until
from k_safety_lab import LinkedCluster, Replicas

NAME = "schedules"
KINDS = ("kill worker", "kill node", "pause", "cut")
FAULTS = 3
SHORT, LONG = 1.0, 9.0
"""How long a fault lasts that ends by itself: a session with ZooKeeper ends after 6 seconds of silence."""


@dataclass(frozen=True)
class Fault:
    """Something that happens to one of the replicas, so many seconds after the beginning."""

    at: float
    kind: str
    victim: int
    """Which of those that live then."""
    seconds: float


def schedule(seed: int) -> list[Fault]:
    """Draw what happens. Faults may overlap: then both replicas may be away for a while.

    >>> schedule(3) == schedule(3) != schedule(4)
    True
    """
    dice = random.Random(seed)
    # Each kind comes first in some schedule of any four.
    kinds = [KINDS[seed % len(KINDS)], *(dice.choice(KINDS) for _ in range(FAULTS - 1))]
    moments = sorted(dice.uniform(0.0, 8.0) for _ in kinds)
    return [
        Fault(at, kind, dice.randrange(2), dice.uniform(SHORT, LONG))
        for at, kind in zip(moments, kinds, strict=True)
    ]


class Schedule:
    """Lets faults happen, and end."""

    def __init__(self, cluster: LinkedCluster, replicas: Replicas) -> None:
        self._cluster, self._replicas = cluster, replicas
        self._ends: list[tuple[float, Callable[[], None]]] = []

    def run(self, faults: list[Fault]) -> None:
        """Let all of them happen, and wait until all have ended."""
        began = time.monotonic()
        try:
            for fault in faults:
                self._wait(began + fault.at)
                self._begin(fault)
            self._wait(max((moment for moment, _ in self._ends), default=began))
        finally:
            for _, end in self._ends:
                end()

    def _wait(self, moment: float) -> None:
        """Wait for a moment, and end on the way to it what ends."""
        while (left := moment - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))
            due = [end for end in self._ends if end[0] <= time.monotonic()]
            for one in due:
                self._ends.remove(one)
                one[1]()

    def _begin(self, fault: Fault) -> None:
        living = sorted(self._replicas.living().items())
        if not living:
            return  # All are dead of what came before.
        _, (node, folder) = living[fault.victim % len(living)]
        ends = time.monotonic() + fault.seconds
        if fault.kind == "kill worker":
            self._replicas.kill(folder)
        elif fault.kind == "kill node":
            self._cluster.kill_node(node)
            self._ends.append((ends, self._cluster.supervisors[node].start))
        elif fault.kind == "pause":
            self._ends.append((ends, self._replicas.pause(folder)))
        else:
            self._cluster.cut(node)
            self._ends.append((ends, lambda: self._cluster.heal(node)))


def survives(cluster: LinkedCluster, feeder: Feeder, seed: int) -> None:
    """Let a schedule happen; afterwards the job is k-safe again, and every record has come out once."""
    replicas = Replicas(cluster, NAME)
    Schedule(cluster, replicas).run(schedule(seed))
    until(lambda: len(cluster.get("/nodes")) == 3, "all nodes are back")
    replicas.wait_safe()
    assert len(set(replicas.nodes().values())) == 2, "replicas share no node"
    replicas.check_exact(feeder)
