"""Calls ``update`` of stateful tasks with the state of a key, and handles its results and errors."""

from __future__ import annotations

from typing import Any

from penstock.engine.blueprint import VertexSpec
from penstock.engine.execution.partial_results import IMMUTABLE, Counters, copy_if_mutable
from penstock.engine.execution.record_flow import Flow
from penstock.engine.execution.vertex_step import emit
from penstock.engine.storage.keyed_state import BucketState
from penstock.graph.windows import WindowValues
from penstock.record import Record


def run_update(
    task: Any, key: Any, values: list[Any], state: Any, ts: float | None, out: list[Record]
) -> Any:
    """Call ``update`` once, append the emitted records and return the new state."""
    result = task.update(key, values, state)
    if type(result) is not tuple or len(result) != 2:
        raise TypeError(
            f"update() must return (new_state, items), not {type(result).__name__}"
            + (f" of {len(result)}" if type(result) is tuple else "")
        )
    new, emitted = result
    items: list[Record] = []
    if emitted is None:
        return new
    if type(new) in IMMUTABLE:
        emit(emitted, key, ts, items.append)
    else:
        # The value may share objects with the state, which the next call may modify too early.
        emit(emitted, key, ts, lambda record: items.append(copy_if_mutable(record)))
    out += items
    return new


def copy_values(values: list[Any]) -> list[Any]:
    """Return copies of values for ``update``, which may modify its arguments.

    Needed only if the job continues after errors: a second call, and the entry in ``errors``, use the
    originals.
    """
    copies = [copy_if_mutable(value) for value in values]
    if isinstance(values, WindowValues):
        return WindowValues(copies, values.start, values.end)
    return copies


def store_state(state: BucketState, vertex: str, key: Any, new: Any) -> None:
    """Store the new state of a key; None removes the key."""
    held = state.states.setdefault(vertex, {})
    if new is None:
        held.pop(key, None)
    else:
        held[key] = new
    state.changed(vertex, [key])


def update_key(
    flow: Flow,
    vertex: int,
    counters: Counters,
    spec: VertexSpec,
    state: BucketState,
    key: Any,
    values: list[Any],
    ts: float | None,
    out: list[Record],
) -> None:
    """Call ``update`` for one key, store the new state, and apply the error policy if it raises."""
    before = state.states.get(spec.name, {}).get(key)

    def call() -> Any:
        if not spec.policy.goes_on:
            return run_update(spec.operator, key, values, before, ts, out)
        # A failing call may have modified its arguments; the next call needs unmodified ones.
        return run_update(spec.operator, key, copy_values(values), copy_if_mutable(before), ts, out)

    try:
        new = call()
    except BaseException as error:
        done = flow.error_handler(vertex, counters)(Record(key, list(values), ts), error, lambda: (call(),))
        if done is None:
            return
        [new] = done
    store_state(state, spec.name, key, new)
