"""Servers by how little is asked of them, kept in heaps, so that a task does not look at all of them."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from penstock.schedule.location.ledger import SLACK
from penstock.schedule.location.placement import LocationState

NEAR = 6
FAR = 12
MAX_SCANNED_SERVERS = 64


class CandidateServers:
    """Finds servers that can take a task: first in its own rack, fewer edges away, then anywhere.

    A server's link also carries what its own tasks store elsewhere. What is still to come of it is reserved,
    so that tasks placed early do not take it.
    """

    def __init__(self, placement: LocationState, scans: int) -> None:
        self.placement = placement
        self.scans = scans
        """How many servers may be looked at one by one, in all."""
        network = placement.network
        self.reserved = [0.0] * len(network.names)
        for task, place in enumerate(placement.places):
            if place is None:
                self.reserved[placement.sources[task]] += placement.needs[task][2]
        self.pressure = [self._pressure(server) for server in range(len(network.names))]
        self.everywhere = [(pressure, server) for server, pressure in enumerate(self.pressure)]
        heapify(self.everywhere)
        self.racks = [[(self.pressure[server], server) for server in members] for members in network.members]
        for rack in self.racks:
            heapify(rack)

    def put(self, task: int) -> bool:
        """Put a task on one server that can store and redeploy it, if one is found."""
        placement = self.placement
        server = self._find(task)
        if server is None:
            return False
        placement.put(task, (server, server))
        self.reserved[placement.sources[task]] -= placement.needs[task][2]
        pressure = self._pressure(server)
        self.pressure[server] = pressure
        heappush(self.everywhere, (pressure, server))
        heappush(self.racks[placement.network.rack_of[server]], (pressure, server))
        return True

    def _pressure(self, server: int) -> float:
        """Return the share in use of what a server has least of."""
        ledger = self.placement.ledger
        link = (ledger.storing[server] + self.reserved[server]) / ledger.capacity[server]
        stored = ledger.stored[server] / ledger.storage[server] if ledger.storage[server] > 0 else 1.0
        return max(ledger.cpu_share(server), link, stored)

    def _can_take(self, task: int, server: int) -> bool:
        ledger = self.placement.ledger
        storing = ledger.storing[server] + self.reserved[server] + self.placement.needs[task][2]
        return storing <= ledger.capacity[server] * SLACK and self.placement.can_take(task, server)

    def _find(self, task: int) -> int | None:
        placement = self.placement
        network = placement.network
        source = placement.sources[task]
        reach = placement.reach(task)
        if len(network.names) > FAR and reach:
            found = self._first(task, self.racks[network.rack_of[source]], NEAR)
            if found is None and len(reach) == len(network.names):
                found = self._first(task, self.everywhere, FAR)
            if found is not None:
                return found
        if len(reach) > MAX_SCANNED_SERVERS:
            if self.scans < len(reach):
                return None
            self.scans -= len(reach)
        rack, pressure = network.rack_of, self.pressure
        able = [server for server in reach if self._can_take(task, server)]
        return min(
            able, key=lambda server: (rack[server] != rack[source], pressure[server], server), default=None
        )

    def _first(self, task: int, heap: list[tuple[float, int]], most: int) -> int | None:
        seen: list[tuple[float, int]] = []
        found = None
        while heap and len(seen) < most:
            entry = heappop(heap)
            pressure, server = entry
            if pressure != self.pressure[server] or (seen and seen[-1] == entry):
                continue
            seen.append(entry)
            if self._can_take(task, server):
                found = server
                break
        for entry in seen:
            heappush(heap, entry)
        return found
