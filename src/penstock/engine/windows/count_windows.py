"""Count windows in a bucket: one sequence of windows for each key, or for each lane of a source."""

from __future__ import annotations

from math import inf
from typing import Any

from penstock.engine.blueprint import VertexSpec
from penstock.engine.execution.parcels import Inbox
from penstock.engine.execution.partial_results import Address, copy_if_mutable, merge_records
from penstock.engine.execution.record_flow import Flow, original_record
from penstock.engine.execution.state_update import update_key
from penstock.engine.storage.keyed_state import BucketState, waiting_section
from penstock.engine.windows.window_assigner import timeless
from penstock.graph.tasks import CombiningTask
from penstock.graph.windows import CountWindow, Window, WindowValues
from penstock.record import Record

_TIMES = frozenset({float, int, type(None)})


def run_counted(
    flow: Flow, vertex: int, spec: VertexSpec, inbox: Inbox, addresses: list[Address], state: BucketState
) -> None:
    """Add new records to the waiting ones, and emit every complete window."""
    assert isinstance(spec.window, CountWindow)
    section = waiting_section(spec.name)
    held = state.states.setdefault(section, {})
    touched: dict[tuple[Any], None] = {}
    for address in addresses:
        for _, _, records in inbox.in_order(address):
            for record in records:
                key, value, ts = record
                if type(ts) not in _TIMES and not _is_in_order(ts):
                    recover = flow.error_handler(vertex, flow.no_counters)
                    recover(original_record(record), timeless(ts, TypeError()), None)
                    continue
                entry = (key,)
                touched[entry] = None
                held.setdefault(entry, (0, []))[1].append((ts, value))
    for entry in touched:
        start, stamped = held[entry]
        size, slide = spec.window.size, spec.window.slide
        out: list[Record] = []
        given = 0
        while len(stamped) - given >= size:
            _emit(flow, vertex, spec, state, entry[0], start, stamped[given : given + size], out)
            given += slide
            start += slide
        held[entry] = (start, stamped[given:])
        flow.leave(vertex, flow.no_counters, [(spec.outputs[0], out)])
    state.changed(section, list(touched))


def _is_in_order(ts: Any) -> bool:
    """Return whether a time can be compared; the newest time of a window becomes that of its result."""
    try:
        bool(ts > -inf)
    except Exception:
        return False
    return True


def _emit(
    flow: Flow,
    vertex: int,
    spec: VertexSpec,
    state: BucketState,
    key: Any,
    start: int,
    stamped: list[tuple[Any, Any]],
    out: list[Record],
) -> None:
    times = [ts for ts, _ in stamped if ts is not None]
    newest = max(times) if times else None
    values = [value for _, value in stamped]
    assert isinstance(spec.window, CountWindow)
    if spec.window.slide < spec.window.size:
        # User code may modify them, and the next window needs them unchanged.
        values = [copy_if_mutable(value) for value in values]
    end = start + len(values)
    if spec.kind == "source":
        out.append(Record(None, Window(values, start, end), newest))
    elif isinstance(spec.operator, CombiningTask):
        _combine(flow, vertex, spec, key, values, newest, out)
    else:
        window = WindowValues(values, start, end)
        update_key(flow, vertex, flow.no_counters, spec, state, key, window, newest, out)


def _combine(
    flow: Flow,
    vertex: int,
    spec: VertexSpec,
    key: Any,
    values: list[Any],
    newest: float | None,
    out: list[Record],
) -> None:
    recover = flow.error_handler(vertex, flow.no_counters)
    merged: dict[Any, Any] = {}
    merge_records(spec, [Record(key, value, newest) for value in values], merged, recover)
    for state in merged.values():
        try:
            out.append(Record(key, spec.operator.result(state), newest))
        except BaseException as error:
            recover(Record(key, state, newest), error, None)
