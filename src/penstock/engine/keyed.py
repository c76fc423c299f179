"""Vertices with keyed state: what a bucket does with the parcels that have come for it."""

from __future__ import annotations

from typing import Any

from penstock.engine.exchange import Address, Inbox
from penstock.engine.failure import VertexFailureError
from penstock.engine.flow import Flow
from penstock.engine.items import emit
from penstock.engine.state import BucketState
from penstock.graph.tasks import CombiningTask, StatefulTask
from penstock.record import Record

_new = tuple.__new__


def run_bucket(flow: Flow, operators: list[Any], names: list[str], inbox: Inbox, state: BucketState) -> None:
    """Bring every parcel of a bucket to its vertex, in an order that depends on nothing but the graph."""
    for address in sorted({*inbox.partials, *inbox.groups, *inbox.records}):
        vertex = address[0]
        if address in inbox.partials:
            _combine(flow, address, operators[vertex], names[vertex], inbox.partials[address], state)
        elif address in inbox.groups:
            groups, stamps = inbox.groups[address]
            _update(flow, address, operators[vertex], names[vertex], groups, stamps, state)
        else:
            flow.enter(vertex, address[1], address[2], inbox.records[address])


def _combine(
    flow: Flow,
    address: Address,
    task: CombiningTask,
    name: str,
    partials: dict[Any, Any],
    state: BucketState,
) -> None:
    """Merge partial results into the states; the way of a count, so there is no call that can be saved."""
    if type(task).update is not CombiningTask.update:
        groups = {key: [partial] for key, partial in partials.items()}
        _update(flow, address, task, name, groups, {}, state)
        return
    held = state.states.setdefault(name, {})
    merge, find = task.merge, held.get
    out: list[Record] = []
    append = out.append
    key = partial = None
    try:
        for key, partial in partials.items():
            old = find(key)
            new = partial if old is None else merge(old, partial)
            held[key] = new
            append(_new(Record, (key, new, None)))
    except BaseException as error:
        raise VertexFailureError(address[0], Record(key, partial), error) from error
    for record in out:
        if record[1] is None:
            del held[record[0]]
    state.changed(name, list(partials))
    flow.leave(address[0], address[2], [(task.outputs[0], out)])


def _update(
    flow: Flow,
    address: Address,
    task: StatefulTask,
    name: str,
    groups: dict[Any, list[Any]],
    stamps: dict[Any, float],
    state: BucketState,
) -> None:
    held = state.states.setdefault(name, {})
    update, find = task.update, held.get
    out: list[Record] = []
    append = out.append
    key = None
    values: list[Any] = []
    try:
        for key, values in groups.items():
            result = update(key, values, find(key))
            if type(result) is not tuple or len(result) != 2:
                raise TypeError(
                    f"update() must return (new_state, items), not {type(result).__name__}"
                    + (f" of {len(result)}" if type(result) is tuple else "")
                )
            new, items = result
            if new is None:
                held.pop(key, None)
            else:
                held[key] = new
            if items is not None:
                emit(items, key, stamps.get(key), append)
    except BaseException as error:
        raise VertexFailureError(address[0], Record(key, values), error) from error
    state.changed(name, list(groups))
    flow.leave(address[0], address[2], [(task.outputs[0], out)])
