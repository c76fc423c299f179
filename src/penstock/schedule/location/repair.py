"""Finds places for tasks that found none, and better ones for those that cost something."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, combinations

from penstock.schedule.location.placement import Place, Placement

WIDE = 8
NEAREST = 16
TRIED_PAIRS = 4
ROUNDS = 8
GAIN = 1e-6
"""Less than this part of the cost is no gain, but rounding."""


class Repair:
    """A local search: each step makes the decision cheaper, and the number of places tried is bounded."""

    def __init__(self, placement: Placement, kept: set[int], effort: int) -> None:
        self.placement = placement
        self.kept = kept
        self.effort = effort
        placement.fixed = kept

    def run(self, left: list[int]) -> None:
        """Place what is left, then make it cheaper until nothing gains or the effort is spent."""
        for task in left:
            self._place(task)
        for _ in range(ROUNDS):
            if not self._round(sorted(left)):
                return

    def _round(self, tasks: list[int]) -> bool:
        seconds = self.placement.seconds
        costly = sorted((task for task in tasks if seconds(task) > 0.0), key=lambda task: -seconds(task))
        gained = False
        for task in costly:
            if self.effort <= 0:
                return False
            if seconds(task) > 0.0:
                gained |= self._better(task) or self._exchange(task)
        return gained

    def _better(self, task: int) -> bool:
        """Place a task anew where that is cheaper."""
        return self._try((task,))

    def _exchange(self, task: int) -> bool:
        """Let a task be placed before one or two that are in its way, where that is cheaper for all."""
        others = self._in_the_way(task)
        groups = chain(((other,) for other in others), combinations(others[:NEAREST], 2))
        return any(self._try((task, *group)) for group in groups if self.effort > 0)

    def _try(self, tasks: tuple[int, ...]) -> bool:
        """Place these tasks in this order; take it back unless the sum became smaller."""
        placement = self.placement
        sources = sorted({placement.sources[task] for task in tasks})
        before = self._cost(sources, tasks)
        apart = [other for source in sources for other in placement.apart.get(source, ())]
        rates = {task: placement.rates[task] for task in sorted({*apart, *tasks})}
        places = {task: placement.places[task] for task in tasks}
        for task in tasks:
            placement.remove(task)
        for task in tasks:
            self._place(task)
        for source in sources:
            placement.share(source)
        if self._cost(sources, tasks) < before * (1 - GAIN):
            return True
        for task, rate in rates.items():
            place, _ = placement.remove(task)
            place = places.get(task, place)
            if place is not None:
                placement.put(task, place, rate)
        return False

    def _cost(self, sources: Iterable[int], tasks: Iterable[int]) -> float:
        placement = self.placement
        transfers = sum(placement.source_seconds(source) for source in sources)
        return transfers + sum(placement.seconds(task) for task in tasks if placement.places[task] is None)

    def _place(self, task: int) -> None:
        """Put a task on one server, else on two so that its source's transfers are cheapest, else nowhere."""
        placement = self.placement
        reach = placement.reach(task)
        self.effort -= len(reach) + 1
        able = [server for server in reach if placement.can_take(task, server)]
        if able:
            # The fullest that can take it, to leave large gaps for large tasks.
            server = min(able, key=lambda server: placement.ledger.free_cpu[server])
            placement.put(task, (server, server))
            return
        source = placement.sources[task]
        best: tuple[float, Place] | None = None
        rates = {other: placement.rates[other] for other in sorted(placement.apart.get(source, ()))}
        limit = placement.source_seconds(source) + placement.seconds(task)
        for pair in self._pairs(task, reach):
            if placement.put_apart(task, pair):
                seconds = placement.source_seconds(source)
                if seconds < (best[0] if best else limit) * (1 - GAIN):
                    best = seconds, pair
                placement.remove(task)
                for other, rate in rates.items():
                    placement.set_rate(other, rate)
        if best:
            placement.put_apart(task, best[1])

    def _pairs(self, task: int, reach: list[int]) -> list[Place]:
        """Return the pairs of servers between which there is the most room, some few of them."""
        placement = self.placement
        source = placement.sources[task]
        stores = [server for server in reach if placement.can_store(task, server)]
        servers = range(len(placement.network.names)) if stores else range(0)
        redeploys = [server for server in servers if placement.can_redeploy(task, server)]
        self.effort -= len(reach) + len(servers)
        if len(servers) > WIDE:
            ledger = placement.ledger
            stores = sorted(stores, key=lambda server: -ledger.room(server, source))[:WIDE]
            redeploys = sorted(redeploys, key=lambda server: -ledger.room(server, source))[:WIDE]
        pairs = [(store, redeploy) for store in stores for redeploy in redeploys if store != redeploy]
        self.effort -= len(pairs)
        pairs.sort(key=lambda pair: (-placement.ledger.transfer_room(source, *pair), pair))
        return pairs[:TRIED_PAIRS]

    def _in_the_way(self, task: int) -> list[int]:
        """Return the tasks whose leaving may help: first those of the same source, then all others.

        What was kept of an earlier decision is left alone, unless the task has no place at all.
        """
        placement = self.placement
        source = placement.sources[task]
        may_move_kept = placement.places[task] is None
        others = [
            other
            for other, place in enumerate(placement.places)
            if place is not None and other != task and (may_move_kept or other not in self.kept)
        ]
        same = [other for other in others if placement.sources[other] == source]
        if not placement.reach(task):
            return same
        return same + [other for other in others if placement.sources[other] != source]
