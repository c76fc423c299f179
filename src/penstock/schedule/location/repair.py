"""Finds places for tasks that found none, and better ones for those that cost something."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, combinations, islice, permutations

from penstock.schedule.location.chains import Chains, Move
from penstock.schedule.location.placement import Place, Placement

WIDE = 8
NEAREST = 12
FEW = 64
AT_LEAST = 24
TURNS = 6
TRIED_PAIRS = 4
SMALL = 200
TRIED_CHAINS = 8
CLEARED = 4
"""How many backups at most leave their servers to clear the links."""
SHARING = 8
"""How many places could be looked at in the time that sharing the bandwidth takes, for each transfer."""
GAIN = 1e-6
"""Less than this part of the cost is no gain, but rounding."""


class Repair:
    """A local search: each step makes the decision cheaper, and the number of places tried is bounded."""

    def __init__(self, placement: Placement, kept: set[int], effort: int) -> None:
        self.placement = placement
        self.kept = kept
        self.effort = effort
        self._turn = 0
        self._costly: list[int] = []
        self._noted: dict[int, tuple[Place | None, float]] = {}
        self._empty: Placement | None = None
        self._leasts: dict[int, float] = {}
        self._chains: Chains | None = None
        placement.fixed = kept

    def place(self, left: list[int]) -> None:
        """Place these tasks one by one, without taking anything away for them.

        On large clusters a task sees only some of the servers at a time, so those left over get more turns.
        """
        for turn in range(TURNS if len(self.placement.network.names) > FEW else 1):
            self._turn = turn
            for task in left:
                if self.placement.places[task] is None:
                    self._place(task)
        self._noted.clear()

    def run(self) -> None:
        """Make the decision cheaper until nothing gains or the effort is spent."""
        small = len(self.placement.places) <= SMALL
        # What is cheap to try comes first, and comes again whenever something has changed.
        moves = (self._chain, self._anew, self._clear, self._exchange, *((self._reorder,) if small else ()))
        while any(self._round(move) for move in moves):
            pass

    def _round(self, move: Callable[[int], bool]) -> bool:
        """Try a move with each costly task, the costliest first; a dear one until it gains."""
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

    def bound(self) -> float:
        """Return a cost that no decision is below: that of all tasks, each as if it were alone."""
        return sum(self._least(task) for task in range(len(self.placement.places)))

    def _least(self, task: int) -> float:
        """Return what a task would cost if it were alone: no search can do better for it."""
        if len(self.placement.network.names) > FEW:
            return 0.0
        if task not in self._leasts:
            self._leasts[task] = _alone(self._alone_here(), task)
        return self._leasts[task]

    def _alone_here(self) -> Placement:
        if self._empty is None:
            self._empty = Placement(self.placement.problem)
        return self._empty

    def _anew(self, task: int) -> bool:
        """Place a task anew, where that is cheaper."""
        self._take_out(task)
        self._place(task)
        return self._keep_if_cheaper()

    def _chain(self, task: int) -> bool:
        """Let a task push others on, where that is cheaper for all together."""
        placement = self.placement
        if len(placement.network.names) > FEW:
            return False
        if self._chains is None:
            self._chains = Chains(placement)
        kept = self.kept if placement.places[task] is not None else set()
        for moves, left_over in islice(self._chains.of(task, kept), TRIED_CHAINS):
            self.effort -= 2 * len(moves) + self._chains.spent()
            if self.effort <= 0:
                return False
            if self._moved(moves, left_over):
                return True
        self.effort -= self._chains.spent()
        return False

    def _moved(self, moves: list[Move], left_over: int | None) -> bool:
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
        if placement.places[task] is None or len(placement.network.names) > FEW:
            return False
        size, now = placement.needs[task][1], placement.seconds(task)
        left = _Left(placement, placement.sources[task])
        tried: list[tuple[float, int, Place, list[int]]] = []
        for store, redeploy in self._wide_pairs(task):
            room = min(self._bare(store), self._bare(redeploy), left.above(store, redeploy))
            rate = next((rate for rate in placement.problem.rates if rate <= room), 0.0)
            if not rate or size / rate >= now * (1 - GAIN):
                continue
            there = sorted((placement.stored_on[store] | placement.stored_on[redeploy]) - {task})
            if len(there) <= CLEARED and not self.kept.intersection(there):
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

    def _wide_pairs(self, task: int) -> Iterator[Place]:
        """Return pairs of the servers with the widest links that could take a task if it were alone."""
        empty = self._alone_here()
        servers = sorted(range(len(empty.network.names)), key=lambda server: -self._bare(server))
        stores = [server for server in servers if empty.can_store(task, server)][: 2 * WIDE]
        redeploys = [server for server in servers if empty.can_redeploy(task, server)][: 2 * WIDE]
        return ((store, redeploy) for store in stores for redeploy in redeploys if store != redeploy)

    def _bare(self, server: int) -> float:
        """Return what a server's link has besides the storing of the tasks that work there."""
        ledger = self.placement.ledger
        return ledger.capacity[server] - ledger.own[server].get(server, 0.0)

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

    def _note(self, task: int) -> None:
        self._noted.setdefault(task, (self.placement.places[task], self.placement.rates[task]))

    def _take_out(self, task: int) -> None:
        self._note(task)
        self.placement.remove(task)

    def _keep_if_cheaper(self) -> bool:
        """Share the bandwidth anew; then take back all since the last step, unless it is a gain."""
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
        for pair in self._pairs(task, reach):
            if best and best[0] <= least * (1 + GAIN):
                break
            self.effort -= SHARING * (1 + len(rates))
            if placement.put_apart(task, pair):
                seconds = placement.source_seconds(source)
                if seconds < (best[0] if best else limit) * (1 - GAIN):
                    best = seconds, pair
                placement.remove(task)
                for other, rate in rates.items():
                    placement.set_rate(other, rate)
        if best:
            placement.put_apart(task, best[1])

    def _one_server(self, task: int, reach: list[int]) -> int | None:
        placement = self.placement
        if len(reach) <= FEW:
            able = [server for server in reach if placement.can_take(task, server)]
            # The fullest that can take it, to leave large gaps for large tasks.
            return min(able, key=lambda server: placement.ledger.free_cpu[server]) if able else None
        return next((server for server in self._some(task, reach) if placement.can_take(task, server)), None)

    def _some(self, task: int, servers: list[int]) -> list[int]:
        """Return servers from another one on for each task, so that full ones are not asked each time.

        When the effort is spent these are only a few.
        """
        if len(servers) <= FEW:
            return servers
        begin = (task * 37 + self._turn * AT_LEAST) % len(servers)
        order = servers[begin:] + servers[:begin]
        return order if self.effort > 0 else order[:AT_LEAST]

    def _pairs(self, task: int, reach: list[int]) -> list[Place]:
        """Return the pairs of servers between which there is the most room, some few of them."""
        placement = self.placement
        source = placement.sources[task]
        stores = [server for server in self._some(task, reach) if placement.can_store(task, server)]
        if not stores:
            return []
        servers = self._some(task, list(range(len(placement.network.names))))
        redeploys = [server for server in servers if placement.can_redeploy(task, server)]
        self.effort -= len(reach) + len(servers)
        if len(servers) > WIDE:
            room, most = placement.ledger.room, WIDE if self.effort > 0 else WIDE // 2
            stores = sorted(stores, key=lambda server: -room(server, source))[:most]
            redeploys = sorted(redeploys, key=lambda server: -room(server, source))[:most]
        pairs = [(store, redeploy) for store in stores for redeploy in redeploys if store != redeploy]
        self.effort -= len(pairs)
        left = _Left(placement, source)
        pairs.sort(key=lambda pair: (-left.between(*pair), pair))
        return pairs[: TRIED_PAIRS if self.effort > 0 else 1]


class _Left:
    """What edges leave for the transfers of a source: looked up once for all pairs of servers."""

    def __init__(self, placement: Placement, source: int) -> None:
        self._ledger, self._source = placement.ledger, source
        self._path = placement.network.path
        self._edges: dict[int, float] = {}

    def between(self, store: int, redeploy: int) -> float:
        return self._least(self._path(store, redeploy))

    def above(self, store: int, redeploy: int) -> float:
        """Return what the uplinks leave, whatever the servers' own links do."""
        return self._least(self._path(store, redeploy)[1:-1])

    def _least(self, path: tuple[int, ...]) -> float:
        least = float("inf")
        for edge in path:
            left = self._edges.get(edge)
            if left is None:
                left = self._edges[edge] = self._ledger.edge_left(edge, self._source)
            least = min(least, left)
        return least


def _alone(empty: Placement, task: int) -> float:
    source = empty.sources[task]
    servers = range(len(empty.network.names))
    stores = [server for server in servers if empty.can_store(task, server)]
    redeploys = [server for server in servers if empty.can_redeploy(task, server)]
    if not {*stores}.isdisjoint(redeploys):
        return 0.0
    rooms = [
        empty.ledger.transfer_room(source, store, redeploy) for store in stores for redeploy in redeploys
    ]
    room = max(rooms, default=0.0)
    rate = next((rate for rate in empty.problem.rates if rate <= room), 0.0)
    return empty.cost(task, (stores[0], redeploys[0]) if rate else None, rate)
