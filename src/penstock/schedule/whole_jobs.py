"""Whole jobs in one rack: what they send each other then goes through no switch between racks."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.schedule.greedy import added_cost, most_constrained_first
from penstock.schedule.index import NOWHERE
from penstock.schedule.state import PlacementState


def place_whole_jobs(state: PlacementState, tasks: Iterable[int]) -> list[int]:
    """Place job by job, each in the one rack where that harms least; return what is in no rack by this.

    The largest job is first: it has the fewest racks to go to.
    """
    index = state.index
    jobs: dict[str, list[int]] = {}
    for task in most_constrained_first(index, tasks):
        jobs.setdefault(index.tasks[task].job, []).append(task)
    left = []
    for members in sorted(jobs.values(), key=lambda members: -sum(index.size[task] for task in members)):
        found: tuple[float, list[int]] | None = None
        for rack in range(len(index.rack_counts)):
            total, places = _fill_rack(state, members, rack)
            if len(places) == len(members) and (found is None or total < found[0]):
                found = total, places
            for task in members[: len(places)]:
                state.put(task, NOWHERE)
        if found is None:
            left += members
        else:
            for task, node in zip(members, found[1], strict=True):
                state.put(task, node)
    return left


def _fill_rack(state: PlacementState, tasks: list[int], rack: int) -> tuple[float, list[int]]:
    """Place tasks in a rack until one does not fit; return the harm, and the nodes of those placed."""
    index = state.index
    nodes = [node for node, at in enumerate(index.rack) if at == rack]
    total, places = 0.0, []
    for task in tasks:
        able = [(added_cost(state, task, node), node) for node in nodes if state.fits(task, node)]
        if not able:
            break
        least, node = min(able)
        state.put(task, node)
        total += least
        places.append(node)
    return total, places
