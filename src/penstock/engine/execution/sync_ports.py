"""Synchronised ports: records wait until every port has one, then the task runs once for this set.

Seed 001 II.C: in the synchronous mode ``execute`` is called whenever data have arrived at all ports.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.engine.blueprint import VertexSpec
from penstock.engine.execution.parcels import Inbox
from penstock.engine.execution.partial_results import Address, Counters
from penstock.engine.execution.record_flow import Flow, original_record
from penstock.engine.storage.keyed_state import BucketState, waiting_section
from penstock.engine.windows.window_assigner import timeless
from penstock.graph.tasks import Inputs, Outputs
from penstock.record import Record


def run_aligned(
    flow: Flow,
    vertex: int,
    spec: VertexSpec,
    inbox: Inbox,
    addresses: list[Address],
    state: BucketState,
    batch: int,
) -> None:
    """Add new records to the waiting ones, and run the task for every complete set.

    Waiting records are stored by key, port and batch, so that a batch writes only its own and those it has
    used.
    """
    section = waiting_section(spec.name)
    held: dict[Any, list[Any]] = state.states.setdefault(section, {})
    queues = state.indexes.get(section)
    if queues is None:
        queues = state.indexes[section] = _queues(held)
    touched: dict[Any, None] = {}
    keys: dict[Any, None] = {}
    for address in addresses:
        _, port, counters = address
        for _, _, records in inbox.in_order(address):
            for record in records:
                key = record[0]
                entry = (key, port, batch)
                queue = queues.setdefault((key, port), deque())
                if entry not in touched:
                    touched[entry] = None
                    if entry not in held:
                        held[entry] = []
                        queue.append(entry)
                held[entry].append((counters, record))
                keys[key] = None
    for key in keys:
        whole = min(sum(len(held[entry]) for entry in queues.get((key, port), ())) for port in spec.inputs)
        if whole:
            taken = [_take(held, queues, key, port, whole, touched) for port in spec.inputs]
            for one_of_each in zip(*taken, strict=True):
                _execute(flow, vertex, spec, dict(zip(spec.inputs, one_of_each, strict=True)))
    state.changed(section, list(touched))


def _queues(held: dict[Any, list[Any]]) -> dict[Any, deque[Any]]:
    """Return the entries of each key and port, oldest first."""
    queues: dict[Any, deque[Any]] = {}
    for entry in sorted(held, key=lambda entry: entry[2]):
        queues.setdefault(entry[:2], deque()).append(entry)
    return queues


def _take(
    held: dict[Any, list[Any]],
    queues: dict[Any, deque[Any]],
    key: Any,
    port: str,
    number: int,
    touched: dict[Any, None],
) -> list[tuple[Counters, Record]]:
    """Remove and return the oldest waiting records of a key at a port."""
    queue = queues[key, port]
    found: list[tuple[Counters, Record]] = []
    while len(found) < number:
        entry = queue[0]
        touched[entry] = None
        records = held[entry]
        missing = number - len(found)
        found += records[:missing]
        if len(records) > missing:
            held[entry] = records[missing:]
        else:
            del held[entry]
            queue.popleft()
    if not queue:
        del queues[key, port]
    return found


def _execute(flow: Flow, vertex: int, spec: VertexSpec, taken: dict[str, tuple[Counters, Record]]) -> None:
    """Run the task for one set. Its results get the highest loop counters of the records in the set."""
    by_port = {
        port: [original_record(record) if spec.in_order else record] for port, (_, record) in taken.items()
    }
    counters = tuple(max(counts) for counts in zip(*(counts for counts, _ in taken.values()), strict=True))
    times = [record.ts for records in by_port.values() for record in records if record.ts is not None]
    first = next(iter(by_port.values()))[0]

    def call() -> Outputs:
        outputs = Outputs(spec.outputs)
        outputs._incoming = Record(first.key, None, _newest(times))
        spec.operator.execute(Inputs({port: list(records) for port, records in by_port.items()}), outputs)
        return outputs

    try:
        outputs = call()
    except BaseException as error:
        values = {port: records[0].value for port, records in by_port.items()}
        whole = Record(first.key, values, max(filter(_is_moment, times), default=None))
        outputs = flow.error_handler(vertex, counters)(whole, error, call)
        if outputs is None:
            return
    flow.leave(vertex, counters, [(name, out) for name, out in outputs._emitted.items() if out])


def _newest(times: list[Any]) -> Any:
    try:
        return max(times, default=None)
    except TypeError as error:
        raise timeless(next(ts for ts in times if not _is_moment(ts)), error) from None


def _is_moment(ts: Any) -> bool:
    return isinstance(ts, int | float)
