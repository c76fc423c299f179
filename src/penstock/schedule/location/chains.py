"""Chains: a task takes another's place, which takes a third one's, until one finds a place that is free.

An exchange of two or three tasks does not see that. A search in breadth, like that for an augmenting path in
a matching, looks at each task once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Set

from penstock.schedule.location.bounds import Bounds
from penstock.schedule.location.ledger import SLACK, worst
from penstock.schedule.location.placement import LocationState

ChainStep = tuple[int, int]
"""A task and the server that it goes to, to be stored and redeployed there."""
CHEAPER = 3
"""How many places are looked at here in the time that it takes to try one."""


class DisplacementChains:
    """Finds chains in a placement, and changes nothing."""

    def __init__(self, placement: LocationState, bounds: Bounds) -> None:
        self.placement = placement
        self.bounds = bounds
        self._looked = 0

    def spent(self) -> int:
        """Return what was looked at since this was asked last, in the effort of a place that is tried."""
        spent = self._looked // CHEAPER
        self._looked = 0
        return spent

    def of(self, task: int, kept: Set[int]) -> Iterator[tuple[list[ChainStep], int | None]]:
        """Return chains that begin with a task, each with the task that is left over at its end, if any.

        First come those that end at a free place; then those that leave over a task with a smaller backup.
        Whether the links bear a chain is for those to find out who use it.
        """
        placement, ledger = self.placement, self.placement.ledger
        needs, sources, places = placement.needs, placement.sources, placement.places
        cause: dict[int, ChainStep] = {}
        seen = {task, *kept}
        waiting = deque([task])
        while waiting:
            pushed = waiting.popleft()
            cpu, size, _ = needs[pushed]
            source = sources[pushed]
            for server in self._able_servers(pushed):
                lacks = ledger.stored[server] + size - ledger.storage[server] * SLACK
                has_cpu = ledger.cpu_fits(server, source, cpu)
                there = placement.stored_on[server] | placement.redeployed_to[server]
                self._looked += 1 + len(there)
                if lacks <= 0.0 and has_cpu and self._bears(pushed, server):
                    yield self._chain(cause, (pushed, server)), None
                    continue
                for other in sorted(there - seen):
                    place = places[other]
                    assert place is not None
                    # Most that leave do not leave what is lacking; a glance tells.
                    if lacks > 0.0 and (place[0] != server or needs[other][1] < lacks):
                        continue
                    if not has_cpu and place[1] != server:
                        continue
                    if self._fits(pushed, server, other):
                        seen.add(other)
                        cause[other] = (pushed, server)
                        waiting.append(other)
        for other in sorted(cause, key=lambda other: (needs[other][1], other)):
            if needs[other][1] < needs[task][1]:
                yield self._chain(cause, cause[other]), other

    def _chain(self, cause: dict[int, ChainStep], last: ChainStep) -> list[ChainStep]:
        moves = [last]
        while moves[-1][0] in cause:
            moves.append(cause[moves[-1][0]])
        return moves[::-1]

    def _able_servers(self, task: int) -> list[int]:
        """Return the servers that could take a task if it were alone and where it is not yet."""
        place = self.placement.places[task]
        return [server for server in self.bounds.alone[task].able if place != (server, server)]

    def _bears(self, task: int, server: int) -> bool:
        """Can the way bear the storing of a task? Its own link does so already."""
        ledger, source = self.placement.ledger, self.placement.sources[task]
        rate = self.placement.needs[task][2]
        return all(ledger.edge_fits(edge, source, rate) for edge in ledger.network.path(source, server)[1:])

    def _fits(self, task: int, server: int, leaving: int) -> bool:
        """Has a server the storage and the CPU for a task when another leaves it?"""
        placement, ledger = self.placement, self.placement.ledger
        cpu, size, _ = placement.needs[task]
        source = placement.sources[task]
        stored = ledger.stored[server] + size
        place = placement.places[leaving]
        assert place is not None
        if place[0] == server:
            stored -= placement.needs[leaving][1]
        if stored > ledger.storage[server] * SLACK:
            return False
        if place[1] != server:
            return ledger.cpu_fits(server, source, cpu)
        loads = ledger.cpu[server]
        left = placement.sources[leaving]
        if ledger.failures == 1:
            load = loads.get(source, 0.0) + cpu - (placement.needs[leaving][0] if left == source else 0.0)
            return load <= ledger.free_cpu[server] * SLACK
        changed = dict(loads)
        changed[left] = changed.get(left, 0.0) - placement.needs[leaving][0]
        changed[source] = changed.get(source, 0.0) + cpu
        return worst(changed.values(), ledger.failures) <= ledger.free_cpu[server] * SLACK
