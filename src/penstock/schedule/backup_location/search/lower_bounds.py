"""Lower bounds of the cost: the search stops when it reaches one.

Each task alone has servers that could store it, redeploy it, or do both, whatever the others do. One that no
server can take for both costs at least the transfer between the best two. Of tasks that could be on one
server each, not all need fit there together: how many at most do is a matching of tasks with servers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.schedule.backup_location.backup_problem import (
    LocationProblem,
    Network,
    ProtectedTask,
    allowed_servers,
)
from penstock.schedule.backup_location.search.capacity_ledger import SLACK


@dataclass(frozen=True, slots=True)
class Alone:
    """What there is for a task that has the cluster to itself: servers, those with the widest links first."""

    stores: list[int]
    """Can keep its backup."""
    redeploys: list[int]
    """Can run it."""
    able: list[int]
    """Can do both."""


class Bounds:
    """Answers for each task what it could have at best, and what all together cannot be below.

    A link always carries what its own server's tasks store elsewhere, if all are stored. The costs here are
    therefore those of decisions that leave out no task that has a place when it is alone; `total` says what
    all others cost at least.
    """

    def __init__(self, problem: LocationProblem, network: Network) -> None:
        self.problem = problem
        self.network = network
        servers, capacity = range(len(network.names)), network.capacity
        self._storage = [server.storage * SLACK for server in problem.servers]
        self._free_cpu = [server.free_cpu * SLACK for server in problem.servers]
        self._widest = sorted(servers, key=lambda server: -capacity[server])
        allowed = allowed_servers(problem, network)
        self.alone = [self._look(task, allowed[number]) for number, task in enumerate(problem.tasks)]
        self._whole = [
            0.0 if alone.able else self._seconds(number, capacity) for number, alone in enumerate(self.alone)
        ]
        """What each task costs at least, whatever becomes of the others."""
        self._left_out = [problem.unprotected_seconds(task) for task in problem.tasks]
        self.bare = list(capacity)
        """What a server's link has besides the storing of the tasks that work there."""
        for task, least, left_out in zip(problem.tasks, self._whole, self._left_out, strict=True):
            if least < left_out:
                self.bare[network.index[task.server]] -= task.store_rate
        self._apart: dict[int, float] = {}
        self._matched: dict[float, float] = {}

    def _look(self, task: ProtectedTask, allowed: frozenset[int] | None) -> Alone:
        network, capacity, size, cpu = self.network, self.network.capacity, task.backup, task.cpu
        source, storage, free_cpu = network.index[task.server], self._storage, self._free_cpu
        racks, uplinks, rack = network.rack_of, len(network.names), network.rack_of[source]
        rate = task.store_rate / SLACK
        stores = []
        if capacity[source] >= rate:
            leaves = capacity[uplinks + rack] >= rate
            stores = [
                server
                for server in self._widest
                if storage[server] >= size
                and server != source
                and capacity[server] >= rate
                and (racks[server] == rack or (leaves and capacity[uplinks + racks[server]] >= rate))
            ]
        redeploys = [server for server in self._widest if free_cpu[server] >= cpu and server != source]
        if allowed is not None:
            redeploys = [server for server in redeploys if server in allowed]
        both = {*stores}.intersection(redeploys)
        return Alone(stores, redeploys, [server for server in stores if server in both])

    def _seconds(self, task: int, links: list[float]) -> float:
        """Return what a task costs on two servers, if links have so much."""
        room = self._widest_way(self.alone[task], links) * SLACK
        rate = next((rate for rate in self.problem.rates if rate <= room), 0.0)
        needs = self.problem.tasks[task]
        return needs.backup / rate if rate else self.problem.unprotected_seconds(needs)

    def _widest_way(self, alone: Alone, links: list[float]) -> float:
        network, capacity = self.network, self.network.capacity
        racks, uplinks, highest = network.rack_of, len(network.names), self.problem.rates[0]
        most = 0.0
        for store in alone.stores:
            # No link has more than its capacity, by which they are ordered.
            if capacity[store] <= most or most >= highest:
                break
            above = capacity[uplinks + racks[store]]
            for redeploy in alone.redeploys:
                if capacity[redeploy] <= most:
                    break
                if redeploy == store:
                    continue
                room = min(links[store], links[redeploy])
                if racks[redeploy] != racks[store]:
                    room = min(room, above, capacity[uplinks + racks[redeploy]])
                most = max(most, room)
        return most

    def least(self, task: int) -> float:
        """Return what a task costs at least."""
        return 0.0 if self.alone[task].able else self.apart(task)

    def apart(self, task: int) -> float:
        """Return what a task costs at least if no one server both stores and redeploys it."""
        if task not in self._apart:
            seconds = self._seconds(task, self.bare)
            # Where not all can be stored, nothing is known but what holds whatever becomes of the others.
            lacks = seconds >= self._left_out[task]
            self._apart[task] = self._seconds(task, self.network.capacity) if lacks else seconds
        return self._apart[task]

    def total(self, improvable: Iterable[int] = ()) -> float:
        """Return a cost that no decision is below, as near as these tasks, which cost too much, can tell."""
        tasks = self.problem.tasks
        more = max((self._not_together(tasks[task].backup) for task in improvable), default=0.0)
        all_stored = more + sum(self.least(task) for task in range(len(tasks)))
        extra = (out - least for out, least in zip(self._left_out, self._whole, strict=True) if out > least)
        return min(all_stored, sum(self._whole) + min(extra, default=0.0))

    def _not_together(self, size: float) -> float:
        """Return what backups of this size or more cost because one server each is not there for all."""
        if size not in self._matched:
            self._matched[size] = self._unmatched(size)
        return self._matched[size]

    def _unmatched(self, size: float) -> float:
        """Match the most expensive tasks first, with as many on each server as its storage has room for.

        Sets of tasks that can be matched are a matroid, so that taking the most expensive first is best.
        """
        tasks = self.problem.tasks
        large = [number for number, task in enumerate(tasks) if task.backup >= size]
        large = [number for number in large if self.alone[number].able]
        large.sort(key=lambda number: tasks[number].backup)
        rooms = [0] * len(self._storage)
        left = list(self._storage)
        for number in large:
            for server in self.alone[number].able:
                if left[server] >= tasks[number].backup:
                    left[server] -= tasks[number].backup
                    rooms[server] += 1
        large.sort(key=lambda number: (-self.apart(number), number))
        held: list[list[int]] = [[] for _ in rooms]
        return sum(self.apart(task) for task in large if not self._match(task, rooms, held, set()))

    def _match(self, task: int, rooms: list[int], held: list[list[int]], seen: set[int]) -> bool:
        able = self.alone[task].able
        for server in able:
            if len(held[server]) < rooms[server]:
                held[server].append(task)
                return True
        for server in able:
            if server in seen:
                continue
            seen.add(server)
            for at, other in enumerate(held[server]):
                if self._match(other, rooms, held, seen):
                    held[server][at] = task
                    return True
        return False
