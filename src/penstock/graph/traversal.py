"""Walking along arcs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Arcs = Sequence[Sequence[int]]
"""For each vertex the vertices it has an arc to, each once, in ascending order."""


def arcs_of(size: int, pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Collect arcs by the vertex they leave; edges between the same two vertices are one arc.

    >>> arcs_of(3, [(0, 2), (0, 1), (0, 2)])
    [[1, 2], [], []]
    """
    found: list[set[int]] = [set() for _ in range(size)]
    for start, end in pairs:
        found[start].add(end)
    return [sorted(ends) for ends in found]


def reversed_arcs(arcs: Arcs) -> list[list[int]]:
    """Turn every arc round.

    >>> reversed_arcs([[1, 2], [], []])
    [[], [0], [0]]
    """
    return arcs_of(len(arcs), ((end, start) for start, ends in enumerate(arcs) for end in ends))


def reachable(arcs: Arcs, starts: Iterable[int], floor: int = 0) -> list[int]:
    """Return the starts and all that they reach through vertices from ``floor`` on, ascending.

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
    """Return for each vertex that ``start`` reaches its predecessor on a shortest path from there.

    Among paths of the same length the one through earlier vertices is taken.

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
    """Read the path to a vertex from what :func:`shortest_paths` found.

    >>> path_to({0: None, 1: 0, 2: 0, 3: 1}, 3)
    [0, 1, 3]
    """
    path = []
    step: int | None = end
    while step is not None:
        path.append(step)
        step = before[step]
    return path[::-1]
