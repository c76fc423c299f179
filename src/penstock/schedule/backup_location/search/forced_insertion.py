"""Forced insertion: gives a costly task its preferred servers and displaces others, if that is cheaper.

`repair` takes only steps that gain at once. A transfer at the rate of a whole link gains much, but first all
that others store through its links has to go elsewhere: on the two servers, and, where these are in different
racks, on both uplinks. What that costs is mostly won back by the repair that follows, or all is taken back.
"""

from __future__ import annotations

from itertools import product

from penstock.schedule.backup_location.search.insertion_heuristics import GAIN
from penstock.schedule.backup_location.search.location_repair import LocationRepair
from penstock.schedule.backup_location.search.location_state import Place
from penstock.schedule.backup_location.search.lower_bounds import Bounds

WAYS = 4
"""How many servers, and how many pairs of servers, are tried for a task."""
MOST_AWAY = 16
"""How many tasks at most make room."""
PUSHING = 1500
EXCHANGING = 1800
"""The effort of the repair, each time that a task got its way."""

Way = tuple[Place, list[int]]
"""Where a task would go, and who has to make room."""


class ForcedInsertion:
    """Lowers the cost of a placement, through placements that cost more in between."""

    def __init__(self, repair: LocationRepair, bounds: Bounds, effort: int) -> None:
        self.repair = repair
        self.bounds = bounds
        self.effort = effort
        self.placement = repair.placement
        self._near: dict[float, tuple[int, Place, list[int]]] = {}
        """By what it cost in the end: what did not gain. What costs the same is taken for the same."""

    def run(self) -> None:
        """Force tasks that cost too much into better places, the largest possible gain first."""
        # Chains are cheap: try them for every task before exchanges.
        while self.effort > 0 and not self.repair.done():
            self._near.clear()
            if not (sum(self._for(task) for task in self._improvable()) or self._exchanged()):
                return

    def _exchanged(self) -> bool:
        """Try again what was nearest to a gain, with exchanges."""
        for _, (task, place, away) in sorted(self._near.items()):
            if self.effort > 0 and self._force(task, place, away, exchanging=True):
                return True
        return False

    def _improvable(self) -> list[int]:
        seconds, kept = self.placement.seconds, self.repair.kept
        tasks = [task for task in range(len(self.placement.places)) if task not in kept]
        found = [task for task in tasks if self._is_improvable(task)]
        return sorted(found, key=lambda task: (self.bounds.least(task) - seconds(task), task))

    def _is_improvable(self, task: int) -> bool:
        return self.placement.seconds(task) > self.bounds.least(task) * (1 + GAIN)

    def _for(self, task: int) -> bool:
        if not self._is_improvable(task):
            return False
        for place, away in (*self._servers(task), *self._pairs(task)):
            if self.effort <= 0:
                return False
            if self._force(task, place, away):
                return True
        return False

    def _servers(self, task: int) -> list[Way]:
        """Return servers that could both store and redeploy a task."""
        placement, source = self.placement, self.placement.sources[task]
        found = []
        for server in self.bounds.alone[task].able:
            redeployed = {
                other for other in placement.redeployed_to[server] if self._fail_together(source, other)
            }
            found.append(((server, server), placement.stored_on[server] | redeployed))
        return self._ways(task, [(0.0, place, away) for place, away in found])

    def _pairs(self, task: int) -> list[Way]:
        """Return pairs of servers between which a task is faster than now."""
        placement, bare = self.placement, self.bounds.bare
        capacity, size, now = placement.network.capacity, placement.needs[task][1], placement.seconds(task)
        alone, racks = self.bounds.alone[task], placement.network.rack_of
        faster = [rate for rate in placement.problem.rates if size / rate < now * (1 - GAIN)]
        if not faster:
            return []
        found = []
        crossing = self._crossing(placement.sources[task])
        stores = [server for server in alone.stores if bare[server] >= faster[-1]]
        redeploys = [server for server in alone.redeploys if bare[server] >= faster[-1]]
        self.effort -= len(stores) * len(redeploys)
        for store, redeploy in product(stores, redeploys):
            if store == redeploy:
                continue
            room = min(bare[store], bare[redeploy])
            away = placement.stored_on[store] | placement.stored_on[redeploy]
            if racks[store] != racks[redeploy]:
                for rack in (racks[store], racks[redeploy]):
                    room = min(room, capacity[len(racks) + rack])
                    away = away | crossing[rack]
            rate = next((rate for rate in faster if rate <= room), 0.0)
            if rate:
                found.append((size / rate, (store, redeploy), away))
        return self._ways(task, found)

    def _ways(self, task: int, found: list[tuple[float, Place, set[int]]]) -> list[Way]:
        """Return the best of those, by the task's cost and by how many have to make room."""
        now = self.placement.places[task]
        # Where it is already, only others have to go: that comes first.
        able = [
            (seconds, place != now, len(away), place, sorted(away - {task}))
            for seconds, place, away in found
            if len(away) <= MOST_AWAY and away.isdisjoint(self.repair.kept)
        ]
        return [(place, away) for *_, place, away in sorted(able)[:WAYS]]

    def _crossing(self, source: int) -> list[set[int]]:
        """Return by rack the tasks of other sources that are stored through its uplink."""
        placement, racks = self.placement, self.placement.network.rack_of
        found: list[set[int]] = [set() for _ in placement.network.racks]
        for task, place in enumerate(placement.places):
            if place is None or placement.sources[task] == source:
                continue
            first, last = racks[placement.sources[task]], racks[place[0]]
            if first != last:
                found[first].add(task)
                found[last].add(task)
        return found

    def _force(self, task: int, place: Place, away: list[int], *, exchanging: bool = False) -> bool:
        placement = self.placement
        before, saved = placement.total(), placement.saved()
        for leaving in (task, *away):
            placement.remove(leaving)
        gone = away
        fits = self._put(task, place)
        if not fits:
            gone = [*away, *self._in_the_way(task, place)]
            for leaving in gone[len(away) :]:
                placement.remove(leaving)
            fits = len(gone) > len(away) and self._put(task, place)
        self.effort -= 2 * len(gone) + 2
        if fits:
            now = self._repaired(gone, before, exchanging=exchanging)
            if now < before * (1 - GAIN):
                return True
            largest = max((placement.seconds(other) for other in gone), default=0.0)
            if before * (1 + GAIN) < now < before + largest:
                self._near.setdefault(round(now, 6), (task, place, away))
        placement.restore(saved)
        return False

    def _in_the_way(self, task: int, place: Place) -> list[int]:
        """Return others, besides those stored where a task wants to go: for CPU, and on links it stores by.

        Its own link is one of these: others' transfers may leave too little of it for any storing.
        """
        placement = self.placement
        source, (store, redeploy) = placement.sources[task], place
        places, redeployed = placement.places, placement.redeployed_to
        found = {other for other in redeployed[redeploy] if self._fail_together(source, other)}
        for server in (source, store):
            found |= {other for other in redeployed[server] if places[other] != (server, server)}
        found |= placement.stored_on[source]
        found -= self.repair.kept
        return sorted(found) if len(found) <= MOST_AWAY else []

    def _fail_together(self, source: int, other: int) -> bool:
        return self.placement.problem.failures > 1 or self.placement.sources[other] == source

    def _put(self, task: int, place: Place) -> bool:
        placement = self.placement
        store, redeploy = place
        if not (placement.can_redeploy(task, redeploy) and placement.can_store(task, store)):
            return False
        if store != redeploy:
            return placement.put_apart(task, place)
        placement.put(task, place)
        return True

    def _repaired(self, away: list[int], before: float, *, exchanging: bool) -> float:
        """Place the displaced tasks again, repair, and return the total cost."""
        placement, repair, alone = self.placement, self.repair, self.bounds.alone
        repair.effort = PUSHING
        # Those first that have fewest servers to go to.
        repair.place_all(sorted(away, key=lambda other: (len(alone[other].able), other)))
        repair.run_chains()
        self.effort -= PUSHING - repair.effort
        if exchanging and placement.total() > before * (1 + GAIN):
            repair.effort = EXCHANGING
            repair.exchange()
            self.effort -= EXCHANGING - repair.effort
        return placement.total()
