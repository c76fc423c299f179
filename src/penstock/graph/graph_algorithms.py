"""Reachability, shortest paths, elementary cycles (Johnson), and the edges that close loops.

The functions work on lists of arcs; only ``job_arcs``, ``job_cycles`` and ``loop_edges`` depend on jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import CycleLimitError, shown

if TYPE_CHECKING:
    from penstock.graph.job import Job


Arcs = Sequence[Sequence[int]]
"""The targets of each vertex's arcs, without duplicates, in ascending order."""


def arcs_of(size: int, pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return arcs by source vertex; edges between the same two vertices are one arc.

    >>> arcs_of(3, [(0, 2), (0, 1), (0, 2)])
    [[1, 2], [], []]
    """
    found: list[set[int]] = [set() for _ in range(size)]
    for start, end in pairs:
        found[start].add(end)
    return [sorted(ends) for ends in found]


def reversed_arcs(arcs: Arcs) -> list[list[int]]:
    """Return the arcs in the opposite direction.

    >>> reversed_arcs([[1, 2], [], []])
    [[], [0], [0]]
    """
    return arcs_of(len(arcs), ((end, start) for start, ends in enumerate(arcs) for end in ends))


def reachable(arcs: Arcs, starts: Iterable[int], floor: int = 0) -> list[int]:
    """Return the starts and all vertices that they reach through vertices from ``floor`` on, ascending.

    >>> reachable([[1], [0], [0]], [1]), reachable([[1], [0, 2], [0]], [1], floor=1)
    ([0, 1], [1, 2])
    """
    seen = set(starts)
    waiting = list(seen)
    while waiting:
        for end in arcs[waiting.pop()]:
            if end >= floor and end not in seen:
                seen.add(end)
                waiting.append(end)
    return sorted(seen)


def shortest_paths(arcs: Arcs, start: int, floor: int = 0) -> dict[int, int | None]:
    """Return the predecessor of each vertex reachable from ``start`` on a shortest path.

    Among paths of equal length, the one through earlier vertices is chosen.

    >>> shortest_paths([[1, 2], [3], [3], []], 0)
    {0: None, 1: 0, 2: 0, 3: 1}
    """
    before: dict[int, int | None] = {start: None}
    level = [start]
    while level:
        following = []
        for vertex in level:
            for end in arcs[vertex]:
                if end >= floor and end not in before:
                    before[end] = vertex
                    following.append(end)
        level = following
    return before


def path_to(before: dict[int, int | None], end: int) -> list[int]:
    """Return the path to a vertex from the result of :func:`shortest_paths`.

    >>> path_to({0: None, 1: 0, 2: 0, 3: 1}, 3)
    [0, 1, 3]
    """
    path = []
    step: int | None = end
    while step is not None:
        path.append(step)
        step = before[step]
    return path[::-1]


_STEPS_A_CYCLE = 300
_MIN_STEPS, _MAX_STEPS = 3_000_000, 30_000_000
"""The limits of steps of the search, about one to ten seconds. They bound the time for large graphs with few
cycles; a larger ``limit`` of cycles permits more steps."""


@dataclass(frozen=True)
class LoopEdge:
    """An arc that closes a loop, from ``tail`` back to ``entry``."""

    tail: int
    entry: int
    cycle: tuple[str, ...]
    """The names of the vertices on a shortest cycle that the arc closes, entry first."""


def job_arcs(job: Job) -> list[list[int]]:
    """Return the arcs of a job."""
    return arcs_of(len(job.vertices), ((edge.source, edge.target) for edge in job.edges))


def job_cycles(job: Job, limit: int) -> list[list[str]]:
    """Return all elementary cycles of a job as lists of names."""
    names = [vertex.label for vertex in job.vertices]
    most_steps = min(max(_MIN_STEPS, _STEPS_A_CYCLE * limit), _MAX_STEPS)
    found: list[list[str]] = []
    try:
        for cycle in elementary_cycles(job_arcs(job), most_steps):
            if len(found) >= limit:
                raise CycleLimitError(
                    f"job {shown(job.name)} has more than {limit} elementary cycles, too many to list. The "
                    "job can still run, because loops are counted by entry; list more with "
                    "cycles(limit=...)"
                )
            found.append([names[vertex] for vertex in cycle])
    except _TooMuchWorkError:
        raise CycleLimitError(
            f"job {shown(job.name)} is too large and dense to list its cycles: {len(found)} were found "
            "before the search stopped. The job can still run, because loops are counted by entry"
        ) from None
    return sorted(found)


def loop_edges(job: Job) -> list[LoopEdge]:
    """Return the arcs that close a loop, by entry and tail, without enumerating cycles."""
    names = [vertex.label for vertex in job.vertices]
    return [
        LoopEdge(tail, entry, tuple(names[vertex] for vertex in cycle))
        for tail, entry, cycle in closing_arcs(job_arcs(job))
    ]


def closing_arcs(arcs: Arcs) -> Iterator[tuple[int, int, list[int]]]:
    """Yield (tail, entry, cycle) for each arc that leads to the earliest vertex of a cycle.

    That is an arc u→v where v reaches u through vertices that were added no earlier than v.

    >>> list(closing_arcs([[1], [1, 2], [0]]))
    [(2, 0, [0, 1, 2]), (1, 1, [1])]
    """
    backward = reversed_arcs(arcs)
    for entry, tails in enumerate(backward):
        if not tails or tails[-1] < entry:
            continue
        before = shortest_paths(arcs, entry, floor=entry)
        for tail in tails:
            if tail in before:
                yield tail, entry, path_to(before, tail)


def loop_members(arcs: Arcs, entry: int, backward: Arcs | None = None) -> list[int]:
    """Return all vertices on cycles whose earliest vertex is ``entry``, which comes first.

    >>> loop_members([[1, 2], [0], [0, 3], []], 0)
    [0, 1, 2]
    """
    forward = reachable(arcs, [entry], floor=entry)
    back = set(reachable(backward or reversed_arcs(arcs), [entry], floor=entry))
    return [vertex for vertex in forward if vertex in back]


class _TooMuchWorkError(Exception):
    pass


def elementary_cycles(arcs: Arcs, most_steps: int) -> Iterator[list[int]]:
    """Yield every elementary cycle once, from its earliest vertex on, in at most ``most_steps`` steps.

    This is Johnson's algorithm (SIAM J. Comput. 4, 1975) without recursion: cycles are searched from
    each vertex through later vertices only, and a vertex from which the start was not reached stays
    blocked until one of its successors leads there.

    >>> list(elementary_cycles([[0, 1], [0]], 1000))
    [[0], [0, 1]]
    """
    steps = 0
    backward = reversed_arcs(arcs)
    for start in range(len(arcs)):
        if not backward[start] or backward[start][-1] < start:
            continue
        inside = set(loop_members(arcs, start, backward))
        within = {vertex: [end for end in arcs[vertex] if end in inside] for vertex in inside}
        steps += sum(len(arcs[vertex]) for vertex in inside)
        path, blocked, closed = [start], {start}, set[int]()
        waiters: dict[int, set[int]] = {vertex: set() for vertex in inside}
        stack = [(start, iter(within[start]))]
        while stack:
            steps += 1
            if steps > most_steps:
                raise _TooMuchWorkError
            vertex, ends = stack[-1]
            end = next(ends, None)
            if end is None:
                stack.pop()
                path.pop()
                if vertex in closed:
                    steps += _unblock(vertex, blocked, waiters)
                else:
                    for successor in within[vertex]:
                        waiters[successor].add(vertex)
                if stack and vertex in closed:
                    closed.add(stack[-1][0])
            elif end == start:
                yield list(path)
                closed.add(vertex)
            elif end not in blocked:
                path.append(end)
                blocked.add(end)
                closed.discard(end)
                stack.append((end, iter(within[end])))


def _unblock(vertex: int, blocked: set[int], waiters: dict[int, set[int]]) -> int:
    waiting, count = [vertex], 0
    while waiting:
        freed = waiting.pop()
        count += 1
        if freed in blocked:
            blocked.discard(freed)
            waiting.extend(waiters[freed])
            waiters[freed].clear()
    return count
