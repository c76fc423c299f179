"""The paper's Algorithm 1, as it is described, to compare with.

What the text leaves open, and what is done here:

- The loops are printed one in the other with sorts inside; we read them one after the other: find the servers
  S' that can store, sort them, take the first that passes CheckCPU. The printed ``S = {}`` clears S'.
- ``B'`` of the first half is not defined: we take the pairs (s, s) of S', store and redeploy server the same.
- Where servers are equally many edges away, the order of their description decides.
- The second half sorts "with minimum U(e) between s_w(τ) and s^state"; section V says that the bandwidth
  between store and redeploy server shall be as high as possible, so we sort by the least U(e) between these
  two. That the way from s_w(τ) to the store bears d^store is demanded there too, as section V says.
- d^store is called a size, but is compared with bandwidth: we take the rate d(τ) of equation (4). The
  comparison is strict (``>``) as printed.
- The algorithm keeps no bandwidth for transfers, which equation (4) demands: a transfer gets the highest rate
  that equation (4) leaves, and a pair that leaves none is passed over.
- Servers that a task may not run on are passed over like those that fail CheckCPU.
- Storage, which the paper does not limit, is checked like CPU; several failures at once are not considered by
  the paper, CheckCPU here obeys `Problem.failures` (1 by default).
"""

from __future__ import annotations

from penstock.schedule.backup_location.backup_problem import (
    LocationChoice,
    LocationDecision,
    LocationProblem,
    Network,
    ProtectedTask,
    build_decision,
)
from penstock.schedule.backup_location.search.capacity_ledger import CapacityLedger


def algorithm1(problem: LocationProblem) -> LocationDecision:
    """Decide with Algorithm 1."""
    network = Network(problem)
    ledger = CapacityLedger(problem, network)
    tasks = sorted(problem.tasks, key=lambda task: (task.latency, task.name))
    choices: list[LocationChoice] = []
    left: list[ProtectedTask] = []
    for task in tasks:
        choice = _same_server(task, network, ledger)
        if choice:
            choices.append(choice)
        else:
            left.append(task)
    reasons: dict[str, str] = {}
    for task in left:
        choice = _two_servers(problem, task, network, ledger)
        if choice:
            choices.append(choice)
        else:
            reasons[task.name] = "no pair of servers has storage, CPU and bandwidth for it"
    return build_decision(problem, "algorithm1", choices, reasons)


def _stores(task: ProtectedTask, network: Network, ledger: CapacityLedger) -> list[int]:
    source = network.index[task.server]
    return [
        server
        for server in range(len(network.names))
        if server != source
        and ledger.store_room(source, server) > task.store_rate
        and ledger.storage_fits(server, task.backup)
    ]


def _same_server(task: ProtectedTask, network: Network, ledger: CapacityLedger) -> LocationChoice | None:
    source = network.index[task.server]
    stores = _stores(task, network, ledger)
    for server in sorted(stores, key=lambda server: len(network.path(source, server))):
        if _may_run(task, network.names[server]) and ledger.cpu_fits(server, source, task.cpu):
            ledger.take(source, server, server, (task.cpu, task.backup, task.store_rate), 0.0)
            name = network.names[server]
            edges = len(network.path(source, server))
            return LocationChoice(
                task.name, name, name, reason=f"stores and redeploys on one server, {edges} edges away"
            )
    return None


def _may_run(task: ProtectedTask, server: str) -> bool:
    return task.allowed is None or server in task.allowed


def _two_servers(
    problem: LocationProblem, task: ProtectedTask, network: Network, ledger: CapacityLedger
) -> LocationChoice | None:
    source = network.index[task.server]
    need = (task.cpu, task.backup, task.store_rate)
    redeploys = [
        server
        for server in range(len(network.names))
        if server != source
        and _may_run(task, network.names[server])
        and ledger.cpu_fits(server, source, task.cpu)
    ]
    pairs = [
        (store, redeploy)
        for store in _stores(task, network, ledger)
        for redeploy in redeploys
        if store != redeploy
    ]
    rooms = [ledger.room(edge, source) for edge in range(len(network.capacity))]
    pairs.sort(key=lambda pair: -min(rooms[edge] for edge in network.path(*pair)))
    for store, redeploy in pairs:
        ledger.take(source, store, redeploy, need, 0.0)
        room = ledger.transfer_room(source, store, redeploy)
        rate = next((rate for rate in problem.rates if rate <= room), None)
        if rate is not None:
            ledger.set_rate(source, store, redeploy, rate)
            return LocationChoice(
                task.name,
                network.names[store],
                network.names[redeploy],
                rate,
                task.backup / rate,
                "no one server can store and redeploy it; the pair with the widest way between",
            )
        ledger.give(source, store, redeploy, need, 0.0)
    return None
