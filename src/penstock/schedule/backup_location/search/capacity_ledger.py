"""The remaining CPU, storage and bandwidth while a decision is made.

Two constraints have one shape: *what is always used, and on top the worst that k failing servers can bring*.

- CPU of a redeploy server: the tasks of any k servers that fail at once must fit together (the paper's
  CheckCPU with k = 1). Tasks of servers that do not fail together share the same CPU.
- Bandwidth of an edge, equation (4): the storing of all tasks whose servers work, and the transfers of those
  whose servers failed. A failing server w brings its transfers and takes its storing away.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

from penstock.schedule.backup_location.backup_problem import LocationProblem, Network

SLACK = 1.0 + 1e-9
"""Sums of many numbers differ in the last digits by the order in which they were added."""

Loads = dict[int, float]


def worst(loads: Iterable[float], failures: int) -> float:
    """Return the most that so many failures bring.

    >>> worst([3.0, 1.0, 2.0], 2), worst([-1.0], 1), worst([], 1)
    (5.0, 0.0, 0.0)
    """
    if failures == 1:
        return max(0.0, max(loads, default=0.0))
    return sum(load for load in nlargest(failures, loads) if load > 0.0)


class CapacityLedger:
    """Takes and gives back; a question changes nothing. Servers, tasks and edges are numbers."""

    def __init__(self, problem: LocationProblem, network: Network) -> None:
        self.failures = problem.failures
        self.network = network
        self.capacity = network.capacity
        self.free_cpu = [server.free_cpu for server in problem.servers]
        self.storage = [server.storage for server in problem.servers]
        self.stored = [0.0] * len(self.storage)
        self.cpu: list[Loads] = [{} for _ in self.free_cpu]
        edges = len(self.capacity)
        self.storing = [0.0] * edges
        """All storing on an edge."""
        self.own: list[Loads] = [{} for _ in range(edges)]
        """The storing of each server's tasks on an edge."""
        self.transfers: list[Loads] = [{} for _ in range(edges)]
        """The transfers on an edge when a server failed."""
        self._largest: list[list[tuple[float, int]] | None] = [None] * edges
        """One more than may fail of those that bring the most to an edge, until that changes."""

    def cpu_fits(self, server: int, source: int, cpu: float) -> bool:
        """Answer CheckCPU: can the server run this on top of what a failure of the source brings already?"""
        loads = self.cpu[server]
        load = loads.get(source, 0.0) + cpu
        if self.failures > 1:
            load += worst((more for other, more in loads.items() if other != source), self.failures - 1)
        return load <= self.free_cpu[server] * SLACK

    def cpu_share(self, server: int) -> float:
        """Return how much of a server's free CPU the worst failures take."""
        free = self.free_cpu[server]
        return worst(self.cpu[server].values(), self.failures) / free if free > 0.0 else 1.0

    def storage_fits(self, server: int, size: float) -> bool:
        """Can the server keep a backup of this size?"""
        return self.stored[server] + size <= self.storage[server] * SLACK

    def room(self, edge: int, source: int) -> float:
        """Return the most that one more task of the source may store through an edge, by equation (4).

        Storing counts while the source works, so only the failures of other servers come on top of it.
        """
        left = self.capacity[edge] - self.storing[edge]
        return left - self._others(edge, source, self.failures) if self.transfers[edge] else left

    def store_room(self, source: int, store: int) -> float:
        """Return the least room on the way from a source to a store."""
        return min(self.room(edge, source) for edge in self.network.path(source, store))

    def store_fits(self, source: int, store: int, rate: float) -> bool:
        """Can the way bear this storing?"""
        # Asked most often of all: a generator would take twice as long.
        for edge in self.network.path(source, store)[::-1]:  # noqa: SIM110
            if not self.edge_fits(edge, source, rate):
                return False
        return True

    def edge_fits(self, edge: int, source: int, rate: float) -> bool:
        """Can an edge bear this storing?"""
        capacity = self.capacity[edge]
        if self.storing[edge] + rate > capacity * SLACK:
            return False
        return not self.transfers[edge] or self.room(edge, source) + capacity * (SLACK - 1.0) >= rate

    def transfer_room(self, source: int, store: int, redeploy: int) -> float:
        """Return the highest Z that one more transfer may have when the source failed, by equation (4)."""
        network = self.network
        first, last = network.rack_of[store], network.rack_of[redeploy]
        least = min(self.edge_left(store, source), self.edge_left(redeploy, source))
        if first == last:
            return least
        uplinks = len(network.names)
        return min(least, self.edge_left(uplinks + first, source), self.edge_left(uplinks + last, source))

    def edge_left(self, edge: int, source: int) -> float:
        """Return what an edge leaves for one more transfer when the source failed."""
        brings = self.transfers[edge].get(source, 0.0) - self.own[edge].get(source, 0.0)
        left = self.capacity[edge] * SLACK - self.storing[edge] - brings
        return left - self._others(edge, source, self.failures - 1) if self.failures > 1 else left

    def take(
        self, source: int, store: int, redeploy: int, need: tuple[float, float, float], rate: float
    ) -> None:
        """Note a choice. A task's need is its CPU, the size of its backup and the rate of its storing."""
        cpu, size, storing = need
        _add(self.cpu[redeploy], source, cpu)
        self.stored[store] += size
        for edge in self.network.path(source, store):
            self.storing[edge] += storing
            _add(self.own[edge], source, storing)
            self._largest[edge] = None
        self.set_rate(source, store, redeploy, rate)

    def give(
        self, source: int, store: int, redeploy: int, need: tuple[float, float, float], rate: float
    ) -> None:
        """Forget a choice."""
        cpu, size, storing = need
        _add(self.cpu[redeploy], source, -cpu)
        self.stored[store] -= size
        for edge in self.network.path(source, store):
            self.storing[edge] -= storing
            _add(self.own[edge], source, -storing)
            self._largest[edge] = None
        self.set_rate(source, store, redeploy, -rate)

    def set_rate(self, source: int, store: int, redeploy: int, change: float) -> None:
        """Change the rate of a transfer by so much."""
        if change:
            for edge in self.network.path(store, redeploy):
                _add(self.transfers[edge], source, change)
                self._largest[edge] = None

    def _others(self, edge: int, source: int, failures: int) -> float:
        """Return the most that failures of servers other than this one bring to an edge."""
        largest = self._largest[edge]
        if largest is None:
            own = self.own[edge]
            # Asked so often that a function and a heap for each would take three times as long.
            brought = [(load - own.get(other, 0.0), other) for other, load in self.transfers[edge].items()]
            brought.sort(reverse=True)
            largest = self._largest[edge] = brought[: self.failures + 1]
        if failures == 1:
            for more, other in largest:
                if other != source:
                    return max(more, 0.0)
            return 0.0
        return worst((more for more, other in largest if other != source), failures)


def _add(loads: Loads, source: int, amount: float) -> None:
    total = loads.get(source, 0.0) + amount
    if abs(total) <= 1e-9 * abs(amount):
        loads.pop(source, None)
    else:
        loads[source] = total
