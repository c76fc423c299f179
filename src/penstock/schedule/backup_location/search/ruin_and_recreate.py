"""Ruin and recreate: takes some tasks out at random, puts them back in another way, keeps what is cheaper.

The local search ends where no single exchange gains. This one continues from there for as long as its effort
lasts, and for a while accepts a slightly higher cost, to leave a local optimum. The method is that of
Schrimpf et al., "Record Breaking Optimization Results Using the Ruin and Recreate Principle".
"""

from __future__ import annotations

from penstock.schedule.backup_location.search.location_state import LocationState, Place

MOST = 5
"""How many tasks are taken out at once."""
PAIRS = 3
"""How many pairs of servers are compared for a task that needs two."""
APART = 5
"""Of so many tasks that could be on one server, one is put on two, to leave the place to others."""
GAIN = 1e-6


class RepeatableDraw:
    """Numbers that look random and are the same each time: a decision depends on its problem alone.

    >>> draw = RepeatableDraw(1)
    >>> [draw.below(10) for _ in range(8)]
    [4, 5, 6, 3, 7, 5, 5, 0]
    """

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, limit: int) -> int:
        """Return a number from 0 to below the limit."""
        # The multiplier is that of Knuth's MMIX; the low digits of such numbers are poor.
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        return (self._state >> 33) * limit >> 31

    def some(self, items: list[int], count: int) -> list[int]:
        """Return so many of the items in a random order, fewer if there are fewer."""
        left = list(items)
        for at in range(min(count, len(left))):
            other = at + self.below(len(left) - at)
            left[at], left[other] = left[other], left[at]
        return left[:count]


class RuinAndRecreate:
    """Changes a placement for the better. What was kept of an earlier decision is left alone."""

    def __init__(
        self,
        placement: LocationState,
        kept: set[int],
        effort: int,
        tolerance: float,
        seed: int,
        *,
        spread: bool,
    ) -> None:
        self.placement = placement
        self.tolerance = tolerance
        """By what share a step may raise the cost at first; the share sinks to 0."""
        self.spread = spread
        """Whether tasks that could be on one server are put on two now and then."""
        self.effort = effort
        self.draw = RepeatableDraw(seed)
        self.movable = [task for task in range(len(placement.places)) if task not in kept]
        self.lowest = placement.problem.rates[-1]

    def run(self, least: float = 0.0) -> None:
        """Search until the effort is spent, or the cost is as small as it can be; leave the cheapest."""
        effort = self.effort
        total = best = self.placement.total()
        saved = self.placement.saved()
        while self.effort > 0 and best > least * (1 + GAIN):
            before = self.placement.saved()
            if not self._step():
                break
            found = self.placement.total()
            if found < best * (1 - GAIN):
                best, saved = found, self.placement.saved()
            if found <= total * (1 + self.tolerance * max(0, self.effort) / effort):
                total = found
            else:
                self.placement.restore(before)
        self.placement.restore(saved)

    def _step(self) -> bool:
        """Take tasks out, a costly one among them, and put them back while all transfers are slow.

        Return False if there is no costly one.
        """
        placement, draw = self.placement, self.draw
        costly = [task for task in self.movable if placement.seconds(task) > 0.0]
        if not costly:
            return False
        task = costly[draw.below(len(costly))]
        out = [task, *self._around(task, draw.below(MOST))]
        for leaving in out:
            placement.remove(leaving)
        for tasks in placement.apart.values():
            for other in sorted(tasks):
                if other not in placement.fixed:
                    placement.set_rate(other, self.lowest)
        if draw.below(2):
            out = draw.some(out, len(out))
        else:
            out = sorted(out, key=lambda task: -placement.needs[task][1])
        for entering in out:
            self._put(entering)
        for source in draw.some(sorted(placement.apart), len(placement.apart)):
            placement.share(source)
        return True

    def _around(self, task: int, count: int) -> list[int]:
        """Return others to take out: of two servers where the task might go, or any."""
        placement, draw = self.placement, self.draw
        movable = [other for other in self.movable if other != task]
        if draw.below(3):
            near: set[int] = set()
            for _ in range(2):
                server = draw.below(len(placement.network.names))
                near |= placement.stored_on[server] | placement.redeployed_to[server]
            movable = [other for other in movable if other in near] or movable
        return draw.some(movable, count)

    def _tightest(self, servers: list[int]) -> int:
        """Return the server with the least storage left, so that large gaps stay for large tasks."""
        ledger = self.placement.ledger
        return min(servers, key=lambda server: ledger.storage[server] - ledger.stored[server])

    def _put(self, task: int) -> None:
        placement, draw = self.placement, self.draw
        reach = placement.reach(task)
        names = len(placement.network.names)
        self.effort -= len(reach) + 1
        stores = placement.stores(task, reach)
        if not stores:
            return
        able = placement.redeploys(task, stores)
        if able and not (self.spread and draw.below(APART) == 0):
            server = able[draw.below(len(able))] if draw.below(2) else self._tightest(able)
            placement.put(task, (server, server))
            return
        self.effort -= names
        redeploys = placement.redeploys(task, range(names))
        best: tuple[float, Place] | None = None
        for _ in range(PAIRS if redeploys else 0):
            pair = stores[draw.below(len(stores))], redeploys[draw.below(len(redeploys))]
            placement.put(task, pair)
            room = placement.transfer_room(task)
            placement.remove(task)
            self.effort -= 4
            if room >= self.lowest and (best is None or room > best[0]):
                best = room, pair
        if best:
            placement.put(task, best[1], self.lowest)
