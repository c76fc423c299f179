"""Local search on a location decision.

Displacement chains (breadth-first, as for an augmenting path), reinsertion, cleared links, exchanges,
reordering. Every step lowers the cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Set
from itertools import chain, combinations, islice, permutations, product

from penstock.schedule.backup_location.search.capacity_ledger import SLACK, worst
from penstock.schedule.backup_location.search.insertion_heuristics import (
    GAIN,
    TRIED_PAIRS,
    WIDE,
    TaskInsertion,
    TransferCapacity,
)
from penstock.schedule.backup_location.search.location_state import LocationState, Place
from penstock.schedule.backup_location.search.lower_bounds import Bounds

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


NEAREST = 12
SMALL = 24
TRIED_CHAINS = 8
TELLING = 4
"""Of so many tasks that cost too much it is looked at whether they must."""
CLEARED = 4
"""How many backups at most leave their servers to clear the links."""


class LocationRepair(TaskInsertion):
    """A local search: each step makes the decision cheaper, and the number of places tried is bounded.

    Without bounds, which on many servers take too long to find, it goes on until its effort is spent.
    """

    def __init__(self, placement: LocationState, kept: set[int], effort: int, bounds: Bounds | None) -> None:
        super().__init__(placement, kept, effort)
        self.bounds = bounds
        self._costly: list[int] = []
        self._chains = DisplacementChains(placement, bounds) if bounds else None

    def run(self) -> None:
        """Make the decision cheaper until nothing gains or the effort is spent."""
        small = len(self.placement.places) <= SMALL
        # What is cheap to try comes first, and comes again whenever something has changed.
        moves = (
            self._chain,
            self._reinsert,
            self._clear,
            self._exchange,
            *((self._reorder,) if small else ()),
        )
        while not self.done() and any(self._round(move) for move in moves):
            pass

    def run_chains(self) -> None:
        """Make the decision cheaper by chains alone."""
        while self._round(self._chain):
            pass

    def exchange(self) -> None:
        """Make the decision cheaper by exchanges and chains."""
        while any(self._round(move) for move in (self._exchange, self._chain, self._reinsert)):
            pass

    def _round(self, move: Callable[[int], bool]) -> bool:
        """Try a move with each costly task, the costliest first; stop at the first gain of a slow move."""
        seconds = self.placement.seconds
        tasks = [task for task in range(len(self.placement.places)) if task not in self.kept]
        self._costly = sorted(
            (task for task in tasks if seconds(task) > 0.0), key=lambda task: -seconds(task)
        )
        gained = False
        for task in list(self._costly):
            if self.effort <= 0:
                return False
            if seconds(task) > self._least(task) * (1 + GAIN) and move(task):
                gained = True
                if move in (self._exchange, self._reorder):
                    break
        return gained

    def done(self) -> bool:
        """Is it proven that no decision is cheaper?"""
        return self.placement.total() <= self.bound() * (1 + GAIN)

    def bound(self) -> float:
        """Return a cost that no decision is below, as near as the tasks that cost too much can tell."""
        if self.bounds is None:
            return 0.0
        seconds = self.placement.seconds
        improvable = [
            task
            for task in range(len(self.placement.places))
            if seconds(task) > self._least(task) * (1 + GAIN)
        ]
        improvable.sort(key=lambda task: -seconds(task))
        return self.bounds.total(improvable[:TELLING])

    def _least(self, task: int) -> float:
        return self.bounds.least(task) if self.bounds else 0.0

    def _reinsert(self, task: int) -> bool:
        """Place a task again, where that is cheaper."""
        self._take_out(task)
        self._place(task)
        return self._keep_if_cheaper()

    def _chain(self, task: int) -> bool:
        """Let a task push others on, where that is cheaper for all together."""
        placement = self.placement
        if self._chains is None:
            return False
        kept = self.kept if placement.places[task] is not None else set()
        for moves, left_over in islice(self._chains.of(task, kept), TRIED_CHAINS):
            self.effort -= 2 * len(moves) + self._chains.spent()
            if self.effort <= 0:
                return False
            if self._moved(moves, left_over):
                return True
        self.effort -= self._chains.spent()
        return False

    def _moved(self, moves: list[ChainStep], left_over: int | None) -> bool:
        placement = self.placement
        for leaving, _ in moves:
            self._take_out(leaving)
        if left_over is not None:
            self._take_out(left_over)
        for entering, server in moves:
            if not placement.can_take(entering, server):
                return self._keep_if_cheaper()
            placement.put(entering, (server, server))
        if left_over is not None:
            self._place(left_over)
        return self._keep_if_cheaper()

    def _clear(self, task: int) -> bool:
        """Clear the links of two servers for a task whose transfer is slow, where that is cheaper for all.

        The highest rates are those of whole links: a single backup that is stored there stands against them.
        """
        placement = self.placement
        if placement.places[task] is None or self.bounds is None:
            return False
        size, now = placement.needs[task][1], placement.seconds(task)
        left = TransferCapacity(placement, placement.sources[task])
        alone, bare = self.bounds.alone[task], self.bounds.bare
        faster = [rate for rate in placement.problem.rates if size / rate < now * (1 - GAIN)]
        if not faster:
            return False
        stores = [server for server in alone.stores[: 2 * WIDE] if bare[server] >= faster[-1]]
        redeploys = [server for server in alone.redeploys[: 2 * WIDE] if bare[server] >= faster[-1]]
        tried: list[tuple[float, int, Place, list[int]]] = []
        for store, redeploy in product(stores, redeploys):
            room = min(bare[store], bare[redeploy], left.above(store, redeploy))
            if store == redeploy or room < faster[-1]:
                continue
            there = sorted((placement.stored_on[store] | placement.stored_on[redeploy]) - {task})
            if len(there) <= CLEARED and not self.kept.intersection(there):
                rate = next(rate for rate in faster if rate <= room)
                tried.append((size / rate, len(there), (store, redeploy), there))
        self.effort -= WIDE * WIDE
        for _, _, place, there in sorted(tried)[:TRIED_PAIRS]:
            self.effort -= 2 * len(there)
            for leaving in (task, *there):
                self._take_out(leaving)
            for sharing in placement.apart.get(placement.sources[task], ()):
                self._note(sharing)
            fits = placement.can_store(task, place[0]) and placement.can_redeploy(task, place[1])
            if fits and placement.put_apart(task, place):
                for other in there:
                    self._place(other)
            if self._keep_if_cheaper():
                return True
        return False

    def _exchange(self, task: int) -> bool:
        """Put a task where one or two others leave for it, where that is cheaper for all together."""
        placement = self.placement
        place, rate = placement.remove(task)
        reach = placement.reach(task)
        if place is not None:
            placement.put(task, place, rate)
        for server in reach:
            others = self._blocking(task, server)
            self.effort -= 1 + len(others)
            for group in chain(((other,) for other in others), combinations(others[:WIDE], 2)):
                if self.effort <= 0:
                    return False
                if self._swap(task, server, group):
                    return True
        return False

    def _reorder(self, task: int) -> bool:
        """Place a task before one or two others, wherever all of these are, where that is cheaper."""
        source, places = self.placement.sources, self.placement.places
        may_move_kept = places[task] is None
        others = [
            other
            for other in range(len(places))
            if other != task and (may_move_kept or other not in self.kept)
        ]
        others.sort(key=lambda other: source[other] != source[task])
        for group in chain(((other,) for other in others), permutations(others[:NEAREST], 2)):
            if self.effort <= 0:
                return False
            for leaving in (task, *group):
                self._take_out(leaving)
            for entering in (task, *group):
                self._place(entering)
            if self._keep_if_cheaper():
                return True
        return False

    def _blocking(self, task: int, server: int) -> list[int]:
        """Return the tasks on a server whose leaving may let a task in.

        What was kept of an earlier decision is left alone, unless the task has no place at all.
        """
        placement = self.placement
        source = placement.sources[task]
        if server == source:
            return []
        redeployed = placement.redeployed_to[server]
        if placement.problem.failures == 1:
            redeployed = {other for other in redeployed if placement.sources[other] == source}
        found = placement.stored_on[server] | redeployed
        may_move_kept = placement.places[task] is None
        return sorted(other for other in found if other != task and (may_move_kept or other not in self.kept))

    def _swap(self, task: int, server: int, others: tuple[int, ...]) -> bool:
        placement = self.placement
        self.effort -= 2
        for leaving in (task, *others):
            self._take_out(leaving)
        if placement.can_take(task, server):
            placement.put(task, (server, server))
        elif placement.problem.failures > 1 or self._noted[task][0] is None:
            self._place(task)
        if placement.places[task] is not None:
            for other in others:
                self._place(other)
            self._fill(server)
        return self._keep_if_cheaper()

    def _fill(self, server: int) -> None:
        """Put other costly tasks where one has left."""
        placement = self.placement
        self.effort -= len(self._costly)
        for task in self._costly:
            if placement.seconds(task) > 0.0 and placement.can_take(task, server):
                self._take_out(task)
                placement.put(task, (server, server))
