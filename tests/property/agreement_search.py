"""Goes through every state that replicas can come to, and tells the way to one that must not be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from agreement_model import (
    DEAD,
    ENTER,
    STRAY,
    Place,
    Replica,
    Rules,
    finished,
    first,
    floors,
    may_leave,
    own_step,
    strays,
    wrong_place,
    wrong_replica,
)

from penstock.errors import JobFailedError

State = tuple[int, ...]
"""The number of the shared place, and those of the replicas. Who is who makes no difference, so they are
sorted; but before there is a shared place the first one is apart, which founds it."""
Alone = tuple[State, int]
"""A state, and which of its replicas is the only one that goes on."""
T = TypeVar("T", Place, Replica)


class FoundWrongError(AssertionError):
    """A state that must not be, with the states before it."""


@dataclass(frozen=True)
class Explored:
    """How much there was."""

    states: int
    steps: int


class Numbered(Generic[T]):
    """Parts of states, each looked at once, when it first appears."""

    def __init__(self, wrong: Callable[[T], str]) -> None:
        self.all: list[T] = []
        self._numbers: dict[T, int] = {}
        self._wrong: Callable[[T], str] = wrong

    def number(self, part: T) -> int:
        """Return the number of a part; raises FoundWrongError if it must not be."""
        known = self._numbers.get(part)
        if known is None:
            known = self._numbers[part] = len(self.all)
            self.all.append(part)
            if reason := self._wrong(part):
                raise FoundWrongError(f"{reason}: {part}")
        return known


class Search:
    """One way through all states, breadth first, so that what is wrong is found by a shortest way."""

    def __init__(self, rules: Rules, history: int = 0) -> None:
        self._rules = rules
        self._places: Numbered[Place] = Numbered(wrong_place)
        self._replicas: Numbered[Replica] = Numbered(wrong_replica)
        place, replica = first(rules, history)
        start = (self._places.number(place), self._replicas.number(replica))
        self._new = self._replicas.number(Replica(ENTER))
        self._came_from: dict[State, State] = {start: start}
        self._alone: dict[Alone, Alone] = {}
        self._finishes: set[Alone] = set()
        self._own: dict[tuple[int, int], tuple[int, int] | None] = {}
        self._floors: dict[tuple[int, int], list[int]] = {}
        self._fate: dict[int, int] = {}

    def run(self) -> Explored:
        """Check that nothing wrong can be reached, and that a replica that lives can always finish alone."""
        found = list(self._came_from)
        steps = 0
        for state in found:  # which grows
            try:
                for after in self._after(state):
                    steps += 1
                    if after not in self._came_from:
                        self._came_from[after] = state
                        found.append(after)
            except (FoundWrongError, JobFailedError) as error:
                raise FoundWrongError(f"{error}\n{self._way(state)}") from None
        for state in found:
            self._check_progress(state)
        return Explored(len(found), steps)

    def _after(self, state: State) -> Iterator[State]:
        place, *replicas = state
        for index, replica in enumerate(replicas):
            others = [*replicas[:index], *replicas[index + 1 :]]
            moved = self._own_step(place, replica, others, index)
            if moved is not None:
                after, position = self._state(moved[0], moved[1], others, index)
                self._alone[state, index] = (after, position)
                yield after
            for floor in self._forgets(place, replica):
                yield self._state(floor, replica, others, index)[0]
            yield self._state(place, self._changed(replica), others, index)[0]
            if strays(self._rules, self._replicas.all[replica]):
                strayed = self._replicas.number(self._replicas.all[replica].at(STRAY))
                yield self._state(place, strayed, others, index)[0]
            if self._leaves(place, replica, others, index):
                yield self._sorted(place, others)
        if len(replicas) < self._rules.most:
            yield self._sorted(place, [*replicas, self._new])

    def _own_step(self, place: int, replica: int, others: list[int], index: int) -> tuple[int, int] | None:
        me = self._replicas.all[replica]
        if me.phase not in (ENTER, STRAY) and (place, replica) in self._own:
            return self._own[place, replica]
        step = own_step(
            self._rules, self._places.all[place], me, [self._replicas.all[other] for other in others], index
        )
        moved = None if step is None else (self._places.number(step[0]), self._replicas.number(step[1]))
        self._own[place, replica] = moved
        return moved

    def _forgets(self, place: int, replica: int) -> list[int]:
        known = self._floors.get((place, replica))
        if known is None:
            changed = floors(self._rules, self._places.all[place], self._replicas.all[replica])
            known = self._floors[place, replica] = [self._places.number(after) for after in changed]
        return known

    def _changed(self, replica: int) -> int:
        """Let a replica die, or start again if it is dead."""
        known = self._fate.get(replica)
        if known is None:
            me = self._replicas.all[replica]
            known = self._fate[replica] = self._replicas.number(me.at(ENTER if me.phase == DEAD else DEAD))
        return known

    def _leaves(self, place: int, replica: int, others: list[int], index: int) -> bool:
        me = self._replicas.all[replica]
        if me.phase != DEAD or (index == 0 and self._places.all[place].begin < 0):
            return False
        staying = [self._replicas.all[other] for other in others]
        return may_leave(self._rules, self._places.all[place], me, staying)

    def _state(self, place: int, replica: int, others: list[int], index: int) -> tuple[State, int]:
        """Return the state with a replica among others, and where it is then."""
        state = self._sorted(place, [*others[:index], replica, *others[index:]])
        if index == 0 and self._places.all[place].begin < 0:
            return state, 0
        return state, state.index(replica, 1) - 1

    def _sorted(self, place: int, replicas: list[int]) -> State:
        if self._places.all[place].begin < 0:
            return (place, replicas[0], *sorted(replicas[1:]))
        return (place, *sorted(replicas))

    def _check_progress(self, state: State) -> None:
        """Check that each replica that lives would finish if the others did nothing any more.

        Unless a job is new, before there is a shared place only the first can go on: it alone may know of
        earlier batches. And one that has nothing waits for one that has gone stray, which does not wait.
        """
        unfounded = self._places.all[state[0]].begin < 0 and not self._rules.new
        for index, replica in enumerate(state[1:]):
            if self._replicas.all[replica].phase == DEAD or (unfounded and index > 0):
                continue
            way: dict[Alone, None] = {}
            at: Alone | None = (state, index)
            while at is not None and at not in self._finishes:
                if finished(self._places.all[at[0][0]]):
                    break
                if at in way:
                    at = None
                    break
                way[at] = None
                at = self._alone.get(at)
            others = [*state[1 : index + 1], *state[index + 2 :]]
            if at is None and any(self._replicas.all[other].phase == STRAY for other in others):
                continue
            if at is None:
                raise FoundWrongError(f"replica {index} does not finish alone\n{self._way(state)}")
            self._finishes.update(way)

    def _way(self, state: State) -> str:
        way = [state]
        while self._came_from[way[-1]] != way[-1]:
            way.append(self._came_from[way[-1]])
        lines = [f"after {len(way) - 1} steps:"]
        for place, *replicas in reversed(way):
            lines.append(str(self._places.all[place]))
            lines += [f"    {self._replicas.all[replica]}" for replica in replicas]
        return "\n".join(lines)
