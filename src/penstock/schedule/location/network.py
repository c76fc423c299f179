"""The network as the paper's E: each server's link, each rack's uplink, and the way between two servers."""

from __future__ import annotations

import math

from penstock.schedule.location.model import LocationProblem

Allowed = list[frozenset[int] | None]

FEW = 64
"""Up to so many servers, the ways between them are remembered."""


class Network:
    """Numbers servers and edges, so that what is on the way between two servers is found without search.

    Edge number i is the link of server number i; behind them come the uplinks of the racks.

    >>> from penstock.schedule.location.model import Server, Uplink
    >>> near = Server("a", 4, 100.0, rack="x"), Server("b", 4, 100.0, rack="x")
    >>> servers = (*near, Server("c", 4, 50.0, rack="y"))
    >>> network = Network(Problem(servers, (), (Uplink("y", 20.0),)))
    >>> network.path(0, 1), network.path(0, 2), network.path(2, 2)
    ((0, 1), (0, 3, 4, 2), ())
    >>> network.capacity[3:]
    [inf, 20.0]
    """

    def __init__(self, problem: LocationProblem) -> None:
        self.names = [server.name for server in problem.servers]
        self.index = {name: number for number, name in enumerate(self.names)}
        self.racks = sorted({server.rack for server in problem.servers})
        numbers = {rack: number for number, rack in enumerate(self.racks)}
        self.rack_of = [numbers[server.rack] for server in problem.servers]
        self.members: list[list[int]] = [[] for _ in self.racks]
        for number, rack in enumerate(self.rack_of):
            self.members[rack].append(number)
        limits = {uplink.rack: uplink.bandwidth for uplink in problem.uplinks}
        self.capacity = [server.bandwidth for server in problem.servers]
        self.capacity += [limits.get(rack, math.inf) for rack in self.racks]
        self._paths: dict[tuple[int, int], tuple[int, ...]] = {}

    def path(self, start: int, end: int) -> tuple[int, ...]:
        """Return the edges between two servers; none between a server and itself."""
        # Asked so often that remembering the ways halves the time of a decision on few servers.
        found = self._paths.get((start, end))
        if found is None:
            found = self._path(start, end)
            if len(self.names) <= FEW:
                self._paths[start, end] = found
        return found

    def _path(self, start: int, end: int) -> tuple[int, ...]:
        if start == end:
            return ()
        first, last = self.rack_of[start], self.rack_of[end]
        if first == last:
            return (start, end)
        servers = len(self.names)
        return (start, servers + first, servers + last, end)

    def edge_name(self, edge: int) -> str:
        """Return what an edge is called in reasons."""
        servers = len(self.names)
        if edge < servers:
            return f"the link of {self.names[edge]}"
        return f"the uplink of rack {self.racks[edge - servers]!r}"


def allowed_servers(problem: LocationProblem, network: Network) -> Allowed:
    """Return for each task the servers that may run it; None where all may."""
    index = network.index
    return [
        None if task.allowed is None else frozenset(index[name] for name in task.allowed if name in index)
        for task in problem.tasks
    ]
