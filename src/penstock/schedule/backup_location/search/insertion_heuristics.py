"""Inserts tasks into a location decision.

On one server found by heaps of the least loaded servers, else on the pair with the most bandwidth. An
insertion that does not pay is undone.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from penstock.schedule.backup_location.search.capacity_ledger import SLACK
from penstock.schedule.backup_location.search.location_state import LocationState, Place

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


WIDE = 8
MAX_SEEN_SERVERS = 64
AT_LEAST = 24
"""So many servers a task sees at a time when the effort is spent."""
TRIED_PAIRS = 4
SHARING = 8
"""How many places could be looked at in the time that sharing the bandwidth takes, for each transfer."""
GAIN = 1e-6
"""Less than this part of the cost is no gain, but rounding."""


class TaskInsertion:
    """Places tasks where that is cheapest, and remembers what was before. What it tries is effort spent."""

    def __init__(self, placement: LocationState, kept: set[int], effort: int) -> None:
        self.placement = placement
        self.kept = kept
        self.effort = effort
        self._turn = 0
        self._noted: dict[int, tuple[Place | None, float]] = {}
        placement.fixed = kept

    def place_all(self, left: list[int]) -> None:
        """Place these tasks one by one, without taking anything away for them.

        On large clusters a task sees only some of the servers at a time, so those left over get more turns,
        until they have seen all.
        """
        servers = len(self.placement.network.names)
        for turn in range(-(-servers // AT_LEAST) if servers > MAX_SEEN_SERVERS else 1):
            self._turn = turn
            left = [task for task in left if self.placement.places[task] is None]
            for task in left:
                self._place(task)
        self._noted.clear()

    def _note(self, task: int) -> None:
        self._noted.setdefault(task, (self.placement.places[task], self.placement.rates[task]))

    def _take_out(self, task: int) -> None:
        self._note(task)
        self.placement.remove(task)

    def _keep_if_cheaper(self) -> bool:
        """Share the bandwidth again; then undo all changes since the last step, unless the cost is lower."""
        placement = self.placement
        for source in sorted({placement.sources[task] for task in self._noted}):
            for task in placement.apart.get(source, ()):
                self._note(task)
            placement.share(source)
        noted = sorted(self._noted.items())
        self.effort -= SHARING * len(noted)
        before = sum(placement.cost(task, place, rate) for task, (place, rate) in noted)
        after = sum(placement.seconds(task) for task, _ in noted)
        self._noted = {}
        if after < before * (1 - GAIN):
            return True
        for task, _ in noted:
            placement.remove(task)
        for task, (place, rate) in noted:
            if place is not None:
                placement.put(task, place, rate)
        return False

    def _place(self, task: int) -> None:
        """Put a task on one server, else on two so that its source's transfers are cheapest, else nowhere."""
        placement = self.placement
        self._note(task)
        reach = placement.reach(task)
        self.effort -= len(reach) + 1
        server = self._one_server(task, reach)
        if server is not None:
            placement.put(task, (server, server))
            return
        source = placement.sources[task]
        best: tuple[float, Place] | None = None
        rates = {other: placement.rates[other] for other in sorted(placement.apart.get(source, ()))}
        for other in rates:
            self._note(other)
        others = placement.source_seconds(source)
        limit = others + placement.seconds(task)
        least = others + placement.needs[task][1] / placement.problem.rates[0]
        pairs = self._pairs(task, reach)
        for pair in pairs:
            self.effort -= SHARING * (1 + len(rates))
            if not placement.put_apart(task, pair):
                continue
            seconds = placement.source_seconds(source)
            cheaper = seconds < (best[0] if best else limit) * (1 - GAIN)
            if cheaper and (pair == pairs[-1] or seconds <= least * (1 + GAIN)):
                return
            if cheaper:
                best = seconds, pair
            placement.remove(task)
            for other, rate in rates.items():
                placement.set_rate(other, rate)
        if best:
            placement.put_apart(task, best[1])

    def _one_server(self, task: int, reach: list[int]) -> int | None:
        placement = self.placement
        able = placement.redeploys(task, placement.stores(task, self._some(task, reach)))
        if not able:
            return None
        # Of few servers the fullest that can take it, to leave large gaps for large tasks.
        return (
            able[0]
            if len(reach) > MAX_SEEN_SERVERS
            else min(able, key=lambda server: placement.ledger.free_cpu[server])
        )

    def _some(self, task: int, servers: list[int]) -> list[int]:
        """Return servers from another one on for each task, so that full ones are not asked each time.

        When the effort is spent these are only a few.
        """
        if len(servers) <= MAX_SEEN_SERVERS:
            return servers
        begin = (task * 37 + self._turn * AT_LEAST) % len(servers)
        order = servers[begin:] + servers[:begin]
        return order if self.effort > 0 else order[:AT_LEAST]

    def _pairs(self, task: int, reach: list[int]) -> list[Place]:
        """Return the pairs of servers between which there is the most room, some few of them."""
        placement = self.placement
        source = placement.sources[task]
        stores = placement.stores(task, self._some(task, reach))
        if not stores:
            return []
        servers = self._some(task, list(range(len(placement.network.names))))
        redeploys = placement.redeploys(task, servers)
        self.effort -= len(reach) + len(servers)
        if len(servers) > WIDE:
            room, most = placement.ledger.room, WIDE if self.effort > 0 else WIDE // 2
            stores = sorted(stores, key=lambda server: -room(server, source))[:most]
            redeploys = sorted(redeploys, key=lambda server: -room(server, source))[:most]
        pairs = TransferCapacity(placement, source).widest(stores, redeploys)
        self.effort -= len(pairs)
        return pairs[: TRIED_PAIRS if self.effort > 0 else 1]


class TransferCapacity:
    """What edges leave for the transfers of a source: looked up once for all pairs of servers."""

    def __init__(self, placement: LocationState, source: int) -> None:
        self._ledger, self._source = placement.ledger, source
        self._rack_of, self._uplinks = placement.network.rack_of, len(placement.network.names)
        self._edges: dict[int, float] = {}

    def widest(self, stores: list[int], redeploys: list[int]) -> list[Place]:
        """Return the pairs of a store and another server, those with the widest way between first."""
        rack_of = self._rack_of
        ends = [(redeploy, self._edge(redeploy), rack_of[redeploy]) for redeploy in redeploys]
        found = []
        for store in stores:
            room, rack = self._edge(store), rack_of[store]
            for redeploy, end, other_rack in ends:
                if redeploy != store:
                    above = self.above(store, redeploy) if other_rack != rack else room
                    found.append((-min(room, end, above), store, redeploy))
        found.sort()
        return [(store, redeploy) for _, store, redeploy in found]

    def above(self, store: int, redeploy: int) -> float:
        """Return what the uplinks leave, whatever the servers' own links do."""
        first, last = self._rack_of[store], self._rack_of[redeploy]
        if first == last:
            return float("inf")
        return min(self._edge(self._uplinks + first), self._edge(self._uplinks + last))

    def _edge(self, edge: int) -> float:
        left = self._edges.get(edge)
        if left is None:
            left = self._edges[edge] = self._ledger.edge_left(edge, self._source)
        return left
