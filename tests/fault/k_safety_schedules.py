"""Schedules of deaths, pauses and cuts that happen to the replicas of a job."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clusters import Feeder
from k_safety_lab import LinkedCluster, Replicas, alarms_of

from support.engines import LOCAL
from support.waiting import eventually

KINDS = ("kill worker", "kill node", "pause", "cut")
FAULTS = 3
SPREAD = 8.0
"""Within how many seconds the faults of a schedule begin, where workers take as long to start."""
LOCAL_SPREAD = 2.0
"""The same where a worker is back in two seconds: faults meet replicas that come back from the last one."""
RATE = 200
"""Records a second that a job gets."""
GOES_ON = 2
"""Seconds of input after which the replicas that are left have gone on."""
SHORT, LONG = 1.0, 8.0
"""How long a fault lasts that ends by itself: a session with ZooKeeper ends after 6 seconds of silence."""


@dataclass(frozen=True)
class Fault:
    """Something that happens to some of the replicas at once, so many seconds after the beginning."""

    at: float
    kind: str
    victims: tuple[int, ...]
    """Which of those that live then."""
    seconds: float = 0.0


def schedule(seed: int, replicas: int = 2, spread: float = SPREAD) -> list[Fault]:
    """Draw what happens. Faults may overlap: then all replicas may be away for a while.

    >>> schedule(3) == schedule(3) != schedule(4)
    True
    """
    dice = random.Random(seed)
    # Each kind comes first in some schedule of any four.
    kinds = [KINDS[seed % len(KINDS)], *(dice.choice(KINDS) for _ in range(FAULTS - 1))]
    moments = sorted(dice.uniform(0.0, spread) for _ in kinds)
    return [
        Fault(at, kind, (dice.randrange(replicas),), dice.uniform(SHORT, LONG))
        for at, kind in zip(moments, kinds, strict=True)
    ]


class Faults:
    """Lets faults happen to the replicas of a job, and end."""

    def __init__(self, replicas: Replicas, cluster: LinkedCluster) -> None:
        self._replicas, self._cluster = replicas, cluster
        self._ends: list[tuple[float, Callable[[], object]]] = []

    def run(self, faults: list[Fault]) -> None:
        """Let all of them happen, and wait until all have ended."""
        began = time.monotonic()
        try:
            for fault in faults:
                self._wait(began + fault.at)
                self.begin(fault)
            self._wait(max((moment for moment, _ in self._ends), default=began))
        finally:
            self.end()

    def end(self) -> None:
        """Let all of them be over now."""
        while self._ends:
            self._ends.pop()[1]()

    def _wait(self, moment: float) -> None:
        """Wait for a moment, and end on the way to it what ends."""
        while (left := moment - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))
            due = [end for end in self._ends if end[0] <= time.monotonic()]
            for one in due:
                self._ends.remove(one)
                one[1]()

    def begin(self, fault: Fault) -> None:
        """Let a fault happen."""
        living = sorted(self._replicas.living().items())
        if not living:
            return  # All are dead of what came before.
        victims = [living[index][1] for index in sorted({one % len(living) for one in fault.victims})]
        over = time.monotonic() + fault.seconds
        if fault.kind == "kill worker":
            self._replicas.kill(*(folder for _, folder in victims))
            return
        for node, folder in victims:
            self._ends.append((over, self._happen(fault.kind, node, folder)))

    def _happen(self, kind: str, node: str, folder: Path) -> Callable[[], object]:
        """Let it happen to one replica, and return what ends it."""
        cluster = self._cluster
        if kind == "pause":
            return self._replicas.pause(folder)
        if kind == "kill node":
            cluster.kill_node(node)
            return cluster.supervisors[node].start
        cluster.cut(node)
        return lambda: cluster.heal(node)


class Tried:
    """A job with replicas to which faults happen, and what holds whenever they are over."""

    def __init__(self, cluster: LinkedCluster, name: str, k: int) -> None:
        self.cluster, self.k = cluster, k
        self.replicas = Replicas(cluster, name)
        self.feeder = Feeder(cluster.home, name, rate=RATE)

    def __enter__(self) -> Tried:
        self.feeder.__enter__()
        self.replicas.submit("--k", str(self.k))
        return self

    def __exit__(self, *_: object) -> None:
        self.feeder.stop()

    def replicate(self, k: int) -> None:
        """Have another number of replicas from now on."""
        self.cluster.cli("update", self.replicas.name, "--k", str(k))
        self.k = k
        self.replicas.wait_safe()

    def survives(self, seed: int) -> None:
        """Let a drawn schedule happen; afterwards all is as it should be."""
        spread = LOCAL_SPREAD if self.cluster.engine == LOCAL else SPREAD
        Faults(self.replicas, self.cluster).run(schedule(seed, self.k + 1, spread))
        self.check()

    def goes_on_without(self, kind: str, victims: tuple[int, ...]) -> None:
        """Let something happen to some replicas that is not over before the others have gone on for a while.

        A link is cut until the master misses the node.
        """
        left = len(self.cluster.supervisors) - len(victims)
        goal = self.replicas.written() + GOES_ON * RATE
        faults = Faults(self.replicas, self.cluster)
        try:
            faults.begin(Fault(0.0, kind, victims))
            eventually("the others have gone on", lambda: self.replicas.written() >= goal)
            if kind == "cut":
                eventually("the nodes are missed", lambda: len(self.cluster.get("/nodes")) == left)
        finally:
            faults.end()
        self.check()

    def check(self) -> None:
        """See that the job becomes k-safe by itself, and that every record has come out once."""
        nodes = len(self.cluster.supervisors)
        eventually("all nodes are back", lambda: len(self.cluster.get("/nodes")) == nodes)
        self.replicas.wait_safe()
        assert len(set(self.replicas.nodes().values())) == self.k + 1, "replicas share no node"
        self.replicas.check_exact(self.feeder)

    def end(self) -> None:
        """End the job; all of its output is exact, and no replica has ever differed from the others."""
        self.feeder.stop()
        self.replicas.check_exact(self.feeder)
        assert not alarms_of(self.cluster, "replicas-differ")
        self.replicas.end()
