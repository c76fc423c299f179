"""A decision in progress: tasks are placed and removed, and the capacity ledger follows."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from penstock.schedule.backup_location.backup_problem import (
    LocationChoice,
    LocationProblem,
    Network,
    allowed_servers,
)
from penstock.schedule.backup_location.search.capacity_ledger import SLACK, CapacityLedger

Place = tuple[int, int]
"""Store and redeploy server."""


class LocationState:
    """Where tasks are by now. Tasks are numbers in the problem's order."""

    def __init__(self, problem: LocationProblem) -> None:
        self.problem = problem
        self.network = Network(problem)
        self.ledger = CapacityLedger(problem, self.network)
        self.sources = [self.network.index[task.server] for task in problem.tasks]
        self.needs = [(task.cpu, task.backup, task.store_rate) for task in problem.tasks]
        self.allowed = allowed_servers(problem, self.network)
        self.places: list[Place | None] = [None] * len(problem.tasks)
        self.rates = [0.0] * len(problem.tasks)
        self.stored_on: list[set[int]] = [set() for _ in self.network.names]
        self.redeployed_to: list[set[int]] = [set() for _ in self.network.names]
        racks = self.network.rack_of
        self._nearest = [
            sorted(range(len(racks)), key=lambda server: (racks[server] != rack, server))
            for rack in range(len(self.network.racks))
        ]
        self.fixed: set[int] = set()
        """Tasks whose rate, once they have one, is not shared again."""
        self.apart: dict[int, set[int]] = {}
        """By source: the tasks whose store and redeploy server differ."""

    def seconds(self, task: int) -> float:
        """Return what a task costs now."""
        return self.cost(task, self.places[task], self.rates[task])

    def total(self) -> float:
        """Return what all tasks cost now."""
        return sum(self.seconds(task) for task in range(len(self.places)))

    def cost(self, task: int, place: Place | None, rate: float) -> float:
        """Return what a task costs at a place."""
        if place is None:
            return self.problem.unprotected_seconds(self.problem.tasks[task])
        return self.needs[task][1] / rate if rate else 0.0

    def source_seconds(self, source: int) -> float:
        """Return what the transfers of a source's tasks cost."""
        return sum(self.seconds(task) for task in self.apart.get(source, ()))

    def reach(self, task: int) -> list[int]:
        """Return the servers to which the task's own link and uplink let it store, near ones first."""
        network, ledger = self.network, self.ledger
        source, rate = self.sources[task], self.needs[task][2]
        if not ledger.edge_fits(source, source, rate):
            return []
        rack = network.rack_of[source]
        if not ledger.edge_fits(len(network.names) + rack, source, rate):
            return network.members[rack]
        return self._nearest[rack]

    def can_store(self, task: int, server: int) -> bool:
        """Can this server keep the task's backup?"""
        _, size, rate = self.needs[task]
        source = self.sources[task]
        return (
            server != source
            and self.ledger.storage_fits(server, size)
            and self.ledger.store_fits(source, server, rate)
        )

    def can_redeploy(self, task: int, server: int) -> bool:
        """Can this server run the task?"""
        source, allowed = self.sources[task], self.allowed[task]
        return (
            server != source
            and (allowed is None or server in allowed)
            and self.ledger.cpu_fits(server, source, self.needs[task][0])
        )

    def can_take(self, task: int, server: int) -> bool:
        """Can this server do both?"""
        # Asked for most servers in vain, most often for want of storage or CPU.
        return (
            self.ledger.storage_fits(server, self.needs[task][1])
            and self.can_redeploy(task, server)
            and self.ledger.store_fits(self.sources[task], server, self.needs[task][2])
        )

    def stores(self, task: int, servers: Iterable[int]) -> list[int]:
        """Return those of the servers that can keep the task's backup."""
        ledger, rack_of, uplinks = self.ledger, self.network.rack_of, len(self.network.names)
        _, size, rate = self.needs[task]
        source = self.sources[task]
        stored, storage, fits = ledger.stored, ledger.storage, ledger.edge_fits
        if not fits(source, source, rate):
            return []
        rack = rack_of[source]
        ways = {rack: True}
        found = []
        # What all ways have in common is looked at once: asking for each server takes four times as long.
        for server in servers:
            if (
                stored[server] + size <= storage[server] * SLACK
                and server != source
                and fits(server, source, rate)
            ):
                other = rack_of[server]
                if other not in ways:
                    ways[other] = all(fits(uplinks + end, source, rate) for end in (rack, other))
                if ways[other]:
                    found.append(server)
        return found

    def redeploys(self, task: int, servers: Iterable[int]) -> list[int]:
        """Return those of the servers that can run the task."""
        ledger, source, allowed = self.ledger, self.sources[task], self.allowed[task]
        cpu, loads, free = self.needs[task][0], ledger.cpu, ledger.free_cpu
        if ledger.failures > 1:
            return [server for server in servers if self.can_redeploy(task, server)]
        return [
            server
            for server in servers
            if loads[server].get(source, 0.0) + cpu <= free[server] * SLACK
            and server != source
            and (allowed is None or server in allowed)
        ]

    def put(self, task: int, place: Place, rate: float = 0.0) -> None:
        """Put a task somewhere, without asking whether it fits."""
        store, redeploy = place
        source = self.sources[task]
        self.ledger.take(source, store, redeploy, self.needs[task], rate)
        self.places[task] = place
        self.rates[task] = rate
        self.stored_on[store].add(task)
        self.redeployed_to[redeploy].add(task)
        if store != redeploy:
            self.apart.setdefault(source, set()).add(task)

    def remove(self, task: int) -> tuple[Place | None, float]:
        """Take a task away and return where it was."""
        place, rate = self.places[task], self.rates[task]
        if place is not None:
            store, redeploy = place
            self.ledger.give(self.sources[task], store, redeploy, self.needs[task], rate)
            self.places[task] = None
            self.rates[task] = 0.0
            self.stored_on[store].discard(task)
            self.redeployed_to[redeploy].discard(task)
            if store != redeploy:
                self.apart[self.sources[task]].discard(task)
        return place, rate

    def saved(self) -> list[tuple[Place | None, float]]:
        """Return where all tasks are, for `restore`."""
        return list(zip(self.places, self.rates, strict=True))

    def restore(self, saved: list[tuple[Place | None, float]]) -> None:
        """Put all tasks back to where they were."""
        now = zip(self.places, self.rates, saved, strict=True)
        changed = [task for task, (place, rate, before) in enumerate(now) if (place, rate) != before]
        for task in changed:
            self.remove(task)
        for task in changed:
            place, rate = saved[task]
            if place is not None:
                self.put(task, place, rate)

    def put_apart(self, task: int, place: Place) -> bool:
        """Put a task on two servers and share the bandwidth again; change nothing if it is too little."""
        self.put(task, place)
        if self.share(self.sources[task]):
            return True
        self.remove(task)
        return False

    def share(self, source: int) -> bool:
        """Share the bandwidth among the transfers that a failure of the source starts.

        All begin at the lowest rate; then again and again the one that gains the most for the bandwidth it
        takes goes one rung up. Nothing is changed if not even the lowest rates fit.
        """
        tasks = sorted(
            task for task in self.apart.get(source, ()) if not (task in self.fixed and self.rates[task])
        )
        before = [self.rates[task] for task in tasks]
        ladder = self.problem.rates[::-1]
        for task in tasks:
            self.set_rate(task, 0.0)
        if self._undisturbed(tasks):
            return True
        for task in tasks:
            if not self._raise(task, ladder[0]):
                for changed, rate in zip(tasks, before, strict=True):
                    self.set_rate(changed, rate)
                return False
        if len(ladder) > 1:
            heap = [self._gain(task, 1) for task in tasks]
            heapify(heap)
            while heap:
                _, task, rung = heappop(heap)
                if self._raise(task, ladder[rung]) and rung + 1 < len(ladder):
                    heappush(heap, self._gain(task, rung + 1))
        return True

    def _undisturbed(self, tasks: list[int]) -> bool:
        """Give each the rate it could have alone, if all of them can have it."""
        alone = []
        for task in tasks:
            room = self.transfer_room(task)
            rate = next((rate for rate in self.problem.rates if rate <= room), 0.0)
            if not rate:
                return False
            alone.append(rate)
        for task, rate in zip(tasks, alone, strict=True):
            if not self._raise(task, rate):
                for other in tasks:
                    self.set_rate(other, 0.0)
                return False
        return True

    def transfer_room(self, task: int) -> float:
        """Return by how much a task's transfer may become faster."""
        place = self.places[task]
        assert place is not None
        return self.ledger.transfer_room(self.sources[task], *place)

    def _gain(self, task: int, rung: int) -> tuple[float, int, int]:
        ladder = self.problem.rates
        low, high = ladder[-rung], ladder[-rung - 1]
        return -self.needs[task][1] / (low * high), task, rung

    def _raise(self, task: int, rate: float) -> bool:
        if self.transfer_room(task) < rate - self.rates[task]:
            return False
        self.set_rate(task, rate)
        return True

    def set_rate(self, task: int, rate: float) -> None:
        """Give a task's transfer this rate, without asking whether it fits."""
        place = self.places[task]
        assert place is not None
        self.ledger.set_rate(self.sources[task], *place, rate - self.rates[task])
        self.rates[task] = rate

    def choice(self, task: int) -> LocationChoice | None:
        """Return what was decided for a task."""
        place = self.places[task]
        if place is None:
            return None
        name, names = self.problem.tasks[task].name, self.network.names
        store, redeploy = place
        if store == redeploy:
            return LocationChoice(
                name, names[store], names[store], reason="one server stores and redeploys it"
            )
        reason = "no one server has the storage, CPU and bandwidth; nothing cheaper was found than this pair"
        return LocationChoice(
            name, names[store], names[redeploy], self.rates[task], self.seconds(task), reason
        )
