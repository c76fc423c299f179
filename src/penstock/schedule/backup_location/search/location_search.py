"""The algorithm Penstock decides with: like Algorithm 1 it prefers one server for both, and then repairs.

1. Tasks that ask for much come first. Each goes to the server of which the least is asked that can both store
   and redeploy it, in its own rack if there is one. Heaps give these servers, so that not all pairs are
   looked at.
2. A task for which there is none is put on two servers; the transfers that one failure starts share the
   bandwidth.
3. If that costs something, local search follows (`location_repair`): a task that costs something takes the
   place of others that can go elsewhere, which may displace others in turn, or has links cleared for its
   transfer.
4. Where no single step gains, a task that costs too much is placed by force, those that it displaces are
   placed again, and the local search repairs what that costs (`forced_insertion`).
5. For few tasks, several orders are tried, and Algorithm 1, so that the decision is never worse than its own;
   then tasks are removed at random and inserted again (`ruin_and_recreate`). This takes longer.

The search ends as soon as the cost reaches a lower bound (`lower_bounds`).

**k failures at once.** The CPU of a redeploy server suffices for the tasks of any k servers that fail
together, and every edge bears equation (4) then. The bound is conservative: a task whose store or redeploy
server fails together with its own still counts, though it cannot be redeployed as decided; such a task needs
a new decision.

**Few changes.** `resolve` keeps each choice of an earlier decision that still holds and did not become much
worse; only the others are decided again. A kept choice changes only where a task would otherwise have no
place at all.

All is deterministic: ties go by the order of servers and tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.schedule.backup_location.backup_problem import LocationDecision, LocationProblem, build_decision
from penstock.schedule.backup_location.search.forced_insertion import ForcedInsertion
from penstock.schedule.backup_location.search.iijima_algorithm import algorithm1
from penstock.schedule.backup_location.search.insertion_heuristics import CandidateServers, TaskInsertion
from penstock.schedule.backup_location.search.location_repair import LocationRepair
from penstock.schedule.backup_location.search.location_state import LocationState
from penstock.schedule.backup_location.search.lower_bounds import Bounds
from penstock.schedule.backup_location.search.ruin_and_recreate import RuinAndRecreate

Order = Callable[[LocationState], list[int]]

MUCH_WORSE = 2.0
SECONDS_WORTH = 1.0
EFFORT = 20_000
EFFORT_PER_TASK = 8
EXPLAINED = 30
FEW_SERVERS = 64
"""Up to so many, each task's bounds are looked up."""
FEW_TASKS = 24
"""Up to so many, what costs something is tried from several orders of the tasks, and from Algorithm 1."""
STARTS = 5
"""How many beginnings that makes."""
FORCED_TASKS = 200
"""Up to so many tasks, forced insertion follows the local search."""
MANY_TASKS = 36
"""From so many on, forced insertion gets less effort, so that the time stays about the same."""
RUIN_EFFORT = 8
"""Times the effort of a repair, for all runs of `ruin` together."""
_RUINS = ((0.3, False), (0.6, True))
"""How `ruin` is run, one time after the other; what each finds is repaired. See its arguments."""


def solve(problem: LocationProblem, *, effort: int | None = None) -> LocationDecision:
    """Decide for all tasks. The effort bounds how many places are tried, and so the time."""
    return _solve(problem, None, effort)


def resolve(
    problem: LocationProblem, previous: LocationDecision, *, effort: int | None = None
) -> LocationDecision:
    """Decide again after something changed, and keep of the previous decision what can be kept.

    A choice is given up if one of its servers is gone, if the task now works on one of them, if they can take
    it no more, or if its transfer takes over twice as long as it did and over a second more.
    Tasks that had no place are tried again, and other choices change for them only if that makes the sum
    smaller: without such tasks, an unchanged problem gives an unchanged decision.
    """
    return _solve(problem, previous, effort)


def _solve(
    problem: LocationProblem, previous: LocationDecision | None, effort: int | None
) -> LocationDecision:
    if effort is None:
        effort = EFFORT + EFFORT_PER_TASK * len(problem.tasks)
    few = len(problem.tasks) <= FEW_TASKS
    bounds: Bounds | None = None
    repairs: list[LocationRepair] = []
    for placement, kept in _starts(problem, previous, effort, few=few):
        if placement.total() == 0.0:
            return _decision(problem, placement, optimal=True)
        if len(problem.servers) <= FEW_SERVERS:
            bounds = bounds or Bounds(problem, placement.network)
        repair = LocationRepair(placement, kept, effort // STARTS if few else effort, bounds)
        repair.run()
        if repair.done():
            return _decision(problem, placement, optimal=True)
        repairs.append(repair)
    cheapest = min(repairs, key=lambda repair: repair.placement.total())
    _force_insertions(cheapest, effort)
    if few:
        # A decision that is made again and again, and keeps most of the one before, must not take long.
        _search(cheapest, effort, (1 if previous else RUIN_EFFORT) * effort)
    return _decision(problem, cheapest.placement, optimal=cheapest.done())


def _starts(
    problem: LocationProblem, previous: LocationDecision | None, effort: int, *, few: bool
) -> Iterator[tuple[LocationState, set[int]]]:
    """Return placements to begin with, and what was kept in each of the decision before."""
    for order in _ORDERS if few else _ORDERS[:1]:
        placement = LocationState(problem)
        kept = _keep(placement, previous) if previous else set()
        _place(placement, kept, order, effort)
        yield placement, kept
    if few and previous is None:
        placement = LocationState(problem)
        _keep(placement, algorithm1(problem))
        _place(placement, set(), _hardest_first, effort)
        yield placement, set()


def _force_insertions(repair: LocationRepair, effort: int) -> None:
    tasks = len(repair.placement.places)
    # With choices to keep, do not displace other tasks for a costly one.
    if repair.bounds and tasks <= FORCED_TASKS and not repair.kept:
        # Each try takes the longer the more tasks there are.
        ForcedInsertion(repair, repair.bounds, effort * 5 // 4 * MANY_TASKS // max(MANY_TASKS, tasks)).run()


def _search(repair: LocationRepair, effort: int, ruin_effort: int) -> None:
    for seed, (tolerance, spread) in enumerate(_RUINS):
        if repair.done():
            return
        share = ruin_effort // len(_RUINS)
        ruin = RuinAndRecreate(repair.placement, repair.kept, share, tolerance, seed, spread=spread)
        ruin.run(repair.bound())
        repair.effort = min(share, effort) * 2 // 3
        repair.run()
        _force_insertions(repair, effort)


def _place(placement: LocationState, kept: set[int], order: Order, effort: int) -> None:
    """Place all tasks that are not placed yet in an order."""
    open_tasks = [task for task in order(placement) if placement.places[task] is None]
    candidates = CandidateServers(placement, effort)
    left = [task for task in open_tasks if not candidates.put(task)]
    TaskInsertion(placement, kept, effort).place_all(left)


def _decision(problem: LocationProblem, placement: LocationState, *, optimal: bool) -> LocationDecision:
    choices = [choice for task in range(len(problem.tasks)) if (choice := placement.choice(task))]
    reasons = {
        problem.tasks[task].name: _why_not(placement, task)
        for task in range(len(problem.tasks))
        if placement.places[task] is None
    }
    return build_decision(problem, "improved", choices, reasons, optimal=optimal)


def _hardest_first(placement: LocationState) -> list[int]:
    """Return the tasks, those first that ask for the largest share of what the servers have on average."""
    ledger, servers = placement.ledger, max(1, len(placement.network.names))
    totals = (sum(ledger.free_cpu), sum(ledger.storage), sum(ledger.capacity[:servers]))
    shares = [servers / total if total > 0 else 0.0 for total in totals]
    cpu, size, rate = shares

    def hardness(task: int) -> float:
        need = placement.needs[task]
        return max(need[0] * cpu, need[1] * size, need[2] * rate)

    return _largest_first(placement, hardness)


def _largest_first(placement: LocationState, size: Callable[[int], float]) -> list[int]:
    tasks = placement.problem.tasks
    return sorted(range(len(tasks)), key=lambda task: (-size(task), tasks[task].name))


_ORDERS: tuple[Order, ...] = (
    _hardest_first,
    lambda placement: _largest_first(placement, lambda task: placement.needs[task][1]),
    lambda placement: _largest_first(placement, lambda task: placement.needs[task][0]),
    lambda placement: _largest_first(placement, lambda task: -placement.needs[task][2]),
)
"""Of the tasks: by the scarcest need, by the size of the backup, by CPU, and the smallest rate first."""


def _keep(placement: LocationState, previous: LocationDecision) -> set[int]:
    """Put the tasks back where they were as far as that holds, and return those."""
    problem, index = placement.problem, placement.network.index
    numbers = {task.name: number for number, task in enumerate(problem.tasks)}
    kept: set[int] = set()
    for choice in previous.choices:
        task = numbers.get(choice.task)
        if task is None or choice.store not in index or choice.redeploy not in index:
            continue
        place = (index[choice.store], index[choice.redeploy])
        if not (placement.can_store(task, place[0]) and placement.can_redeploy(task, place[1])):
            continue
        placement.put(task, place)
        if place[0] != place[1]:
            room = placement.ledger.transfer_room(placement.sources[task], *place)
            rate = next((rate for rate in problem.rates if rate <= min(room, choice.rate)), 0.0)
            allowed = max(MUCH_WORSE * choice.seconds, choice.seconds + SECONDS_WORTH)
            if not rate or placement.needs[task][1] / rate > allowed:
                placement.remove(task)
                continue
            placement.remove(task)
            placement.put(task, place, rate)
        kept.add(task)
    return kept


def _why_not(placement: LocationState, task: int) -> str:
    """Return why a task has no place: what stands against each server, counted."""
    network, source = placement.network, placement.sources[task]
    reach = placement.reach(task)
    if len(network.names) < 2:
        return "there is no other server"
    if not reach:
        return f"{network.edge_name(source)}, where it works, has no bandwidth left for storing it elsewhere"
    servers = [server for server in reach if server != source][:EXPLAINED]
    _, size, rate = placement.needs[task]
    no_storage = sum(not placement.ledger.storage_fits(server, size) for server in servers)
    no_way = sum(not placement.ledger.store_fits(source, server, rate) for server in servers)
    no_cpu = sum(not placement.can_redeploy(task, server) for server in servers)
    return (
        f"of {len(servers)} servers looked at {no_storage} lack storage, "
        f"{no_way} lack bandwidth on the way and {no_cpu} lack CPU for it or may not run it"
    )
