"""The problem and the decision of backup location as frozen data, in bytes and bytes/s.

Servers with the links and uplinks between them, tasks, and the chosen store and redeploy server of each
task. It knows no search.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.errors import PenstockError

RUNGS = 8
UNPROTECTED_FACTOR = 10.0
UNKNOWN_BANDWIDTH = 125e6
"""Default bandwidth of a link in bytes a second: 1 Gbit/s."""


class ProblemError(PenstockError):
    """A description of servers and tasks contradicts itself."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server s of the paper's S."""

    name: str
    cpu: float
    """All of its CPU, in cores."""
    bandwidth: float
    """Of the link that connects it, in bytes/s."""
    cpu_in_use: float = 0.0
    storage: float = math.inf
    """What it has for others' backups, in bytes."""
    rack: str = ""

    @property
    def free_cpu(self) -> float:
        """Return c_s, which we read as what is left for redeployed tasks: what runs there goes on to run."""
        return max(0.0, self.cpu - self.cpu_in_use)


@dataclass(frozen=True, slots=True)
class ProtectedTask:
    """A task τ of the paper's T.

    >>> task = ProtectedTask("count", "a", cpu=1, snapshot=50e6, input_rate=1e6, interval=10)
    >>> task.backup, task.store_rate
    (60000000.0, 6000000.0)
    """

    name: str
    server: str
    """Where it works now: s_w(τ) of equation (1)."""
    cpu: float
    """c_τ, in cores."""
    snapshot: float
    """The size of a snapshot."""
    input_rate: float
    """How fast its input comes; all of it is replicated to the store."""
    interval: float = 10.0
    """Seconds between two snapshots."""
    latency: float = 1.0
    """l_τ, in seconds: Algorithm 1 takes the tasks that bear the least first."""
    allowed: tuple[str, ...] | None = None
    """If not None, the only servers that may run it, by its labels and pins; any may store its backup."""

    @property
    def backup(self) -> float:
        """Return b(τ) of equation (3): the snapshot and all the input that may have come since."""
        return self.snapshot + self.input_rate * self.interval

    @property
    def store_rate(self) -> float:
        """Return d(τ) of equation (4): what storing takes of each edge on its way, per second."""
        return self.input_rate + self.snapshot / self.interval


@dataclass(frozen=True, slots=True)
class Uplink:
    """The link of a rack to all other racks. A rack without one is not limited."""

    rack: str
    bandwidth: float


@dataclass(frozen=True)
class LocationProblem:
    """All that a decision depends on.

    >>> LocationProblem((Server("a", 4, 100.0), Server("b", 4, 50.0)), (), rates=(10, 40)).rates
    (40.0, 10.0)
    """

    servers: tuple[Server, ...]
    tasks: tuple[ProtectedTask, ...]
    uplinks: tuple[Uplink, ...] = ()
    failures: int = 1
    """How many servers may fail at once. The paper assumes one."""
    rates: tuple[float, ...] = field(default=())
    """The rates Z(τ) that a transfer may be given, highest first; by default halves of the fastest link."""

    def __post_init__(self) -> None:
        for kind, names in (
            ("server", [server.name for server in self.servers]),
            ("task", [task.name for task in self.tasks]),
            ("uplink of rack", [uplink.rack for uplink in self.uplinks]),
        ):
            if len(set(names)) < len(names):
                twice = sorted(name for name in set(names) if names.count(name) > 1)
                raise ProblemError(f"{kind} {twice[0]!r} is described twice; give each one name")
        known = {server.name for server in self.servers}
        for task in self.tasks:
            if task.server not in known:
                raise ProblemError(
                    f"task {task.name!r} works on {task.server!r}, which is no server here; "
                    "leave it out until it has been redeployed, or describe the server"
                )
            if task.interval <= 0 or min(task.cpu, task.snapshot, task.input_rate) < 0:
                raise ProblemError(f"task {task.name!r} needs an interval over 0 and no negative figures")
        for server in self.servers:
            if not 0 < server.bandwidth < math.inf:
                raise ProblemError(f"server {server.name!r} needs a bandwidth over 0 that is finite")
        if self.failures < 1:
            raise ProblemError(f"failures is {self.failures}; it must be at least 1")
        if any(not 0 < rate < math.inf for rate in self.rates):
            raise ProblemError("a rate of a transfer must be over 0 and finite")
        fastest = max((server.bandwidth for server in self.servers), default=1.0)
        rates = self.rates or tuple(fastest / 2**rung for rung in range(RUNGS))
        object.__setattr__(self, "rates", tuple(sorted((float(rate) for rate in rates), reverse=True)))

    def unprotected_seconds(self, task: ProtectedTask) -> float:
        """Return what a task without a place costs: a second, and ten transfers at the lowest rate."""
        return 1.0 + UNPROTECTED_FACTOR * task.backup / self.rates[-1]


@dataclass(frozen=True, slots=True)
class LocationChoice:
    """Where one task's backup goes."""

    task: str
    store: str
    """s_d(τ) of equation (1): keeps the snapshot and the replicated input."""
    redeploy: str
    """s_t(τ) of equation (1): runs the task when its server failed."""
    rate: float = 0.0
    """Z(τ): the bandwidth kept for the transfer from the one to the other; 0 where they are the same."""
    seconds: float = 0.0
    """b(τ)/Z(τ), the task's part of equation (3); 0 where nothing is transferred."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Unprotected:
    """A task for which no place was found."""

    task: str
    reason: str


@dataclass(frozen=True, slots=True)
class Objective:
    """What a decision costs, in parts."""

    transfer_seconds: float
    """TL of equation (3)."""
    unprotected_seconds: float
    """What the tasks without a place cost; the paper has none of these, it calls such a case unsolvable."""

    @property
    def total(self) -> float:
        """Return the sum, which all methods here make small."""
        return self.transfer_seconds + self.unprotected_seconds


@dataclass(frozen=True)
class LocationDecision:
    """A place for each task's backup: the set L of the paper, with reasons."""

    method: str
    choices: tuple[LocationChoice, ...]
    unprotected: tuple[Unprotected, ...]
    objective: Objective
    optimal: bool = False
    """Whether it is proven that no better decision exists."""

    def choice(self, task: str) -> LocationChoice | None:
        """Return a task's choice, or None if it has no place."""
        return next((choice for choice in self.choices if choice.task == task), None)


def build_decision(
    problem: LocationProblem,
    method: str,
    choices: Iterable[LocationChoice],
    reasons: dict[str, str],
    *,
    optimal: bool = False,
) -> LocationDecision:
    """Make the decision of these choices; tasks without one are unprotected, for the reasons given."""
    ordered = tuple(sorted(choices, key=lambda choice: choice.task))
    chosen = {choice.task for choice in ordered}
    left = [task for task in problem.tasks if task.name not in chosen]
    left.sort(key=lambda task: task.name)
    return LocationDecision(
        method,
        ordered,
        tuple(Unprotected(task.name, reasons.get(task.name, "no place was found")) for task in left),
        Objective(
            math.fsum(choice.seconds for choice in ordered),
            math.fsum(problem.unprotected_seconds(task) for task in left),
        ),
        optimal,
    )


def changes(before: LocationDecision | None, after: LocationDecision) -> tuple[LocationChoice, ...]:
    """Return the choices whose servers or rate differ from before: what has to be told to the servers."""
    known = {choice.task: choice for choice in before.choices} if before else {}

    def differs(choice: LocationChoice) -> bool:
        old = known.get(choice.task)
        return old is None or (old.store, old.redeploy, old.rate) != (
            choice.store,
            choice.redeploy,
            choice.rate,
        )

    return tuple(choice for choice in after.choices if differs(choice))


Allowed = list[frozenset[int] | None]

FEW = 64
"""Up to so many servers, the ways between them are remembered."""


class Network:
    """Numbers servers and edges, so that what is on the way between two servers is found without search.

    Edge number i is the link of server number i; behind them come the uplinks of the racks.

    >>> from penstock.schedule.backup_location.backup_problem import Server, Uplink
    >>> near = Server("a", 4, 100.0, rack="x"), Server("b", 4, 100.0, rack="x")
    >>> servers = (*near, Server("c", 4, 50.0, rack="y"))
    >>> network = Network(LocationProblem(servers, (), (Uplink("y", 20.0),)))
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
