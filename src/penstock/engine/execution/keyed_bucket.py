"""Runs the vertices after the shuffle for one bucket and its parcels."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from penstock.engine.blueprint import Blueprint
from penstock.engine.execution.parcels import Inbox
from penstock.engine.execution.partial_results import (
    Address,
    Counters,
    copy_if_mutable,
    copy_mutable_values,
    merge_function,
    result_of,
)
from penstock.engine.execution.record_flow import Flow
from penstock.engine.execution.state_update import copy_values, run_update, store_state, update_key
from penstock.engine.execution.sync_ports import run_aligned
from penstock.engine.storage.keyed_state import BucketState
from penstock.engine.windows.count_windows import run_counted
from penstock.engine.windows.time_windows import Panes
from penstock.graph.aggregations import Count
from penstock.graph.tasks import CombiningTask
from penstock.graph.windows import CountWindow, TimeWindow
from penstock.record import Record

_new = tuple.__new__


@dataclass(frozen=True)
class BatchTime:
    """The watermarks of a bucket: those before this batch and those by which the batch closes windows."""

    now: float
    before: dict[str, float]
    marks: dict[int, float]


class Bucket:
    """One bucket during one batch."""

    def __init__(self, flow: Flow, blueprint: Blueprint, batch: int, time: BatchTime) -> None:
        self._flow = flow
        self._vertices = blueprint.vertices
        self._windowed = [timed.vertex for timed in blueprint.plan.timed if _in_time(blueprint, timed.vertex)]
        self._batch = batch
        self._time = time

    def run(self, inbox: Inbox, state: BucketState) -> dict[str, float]:
        """Deliver all parcels to their vertices, then close windows; return the ends of those still open."""
        panes: dict[int, Panes] = {
            vertex: Panes(self._flow, vertex, self._vertices[vertex], state, self._batch)
            for vertex in self._windowed
        }
        addresses = inbox.addresses()
        for number, address in enumerate(addresses):
            vertex = self._flow.scope.vertex = address[0]
            spec = self._vertices[vertex]
            if vertex in panes:
                mark = self._time.before.get(spec.name, -inf)
                panes[vertex].take(inbox, address, mark, self._time.now)
            elif spec.sync or isinstance(spec.window, CountWindow):
                # Addresses of one vertex, which follow each other.
                if number and addresses[number - 1][0] == vertex:
                    continue
                its = [one for one in addresses if one[0] == vertex]
                if spec.sync:
                    run_aligned(self._flow, vertex, spec, inbox, its, state, self._batch)
                else:
                    run_counted(self._flow, vertex, spec, inbox, its, state)
            else:
                self._deliver(inbox, address, state)
        ends: dict[str, float] = {}
        for vertex, pane in panes.items():
            self._flow.scope.vertex = vertex
            end = pane.close(self._time.marks[vertex])
            if end is not None:
                ends[self._vertices[vertex].name] = end
        return ends

    def _deliver(self, inbox: Inbox, address: Address, state: BucketState) -> None:
        if (address, None) in inbox.partials:
            self._combine(address, inbox.partials[address, None], state)
        if address in inbox.groups:
            groups, stamps = inbox.groups[address]
            self._update(address, groups, stamps, state)
        if address in inbox.records:
            records = [record for _, _, part in inbox.in_order(address) for record in part]
            self._flow.enter(address[0], address[1], address[2], records)
        scope = self._flow.scope
        bucket = scope.instance
        for instance, records in inbox.by_instance(address):
            scope.instance = instance
            self._flow.enter(address[0], address[1], address[2], records)
        scope.instance = bucket

    def _combine(self, address: Address, partials: dict[Any, Any], state: BucketState) -> None:
        """Merge partial results into the states. This path runs for each key, so calls are avoided."""
        vertex = address[0]
        spec = self._vertices[vertex]
        task: CombiningTask = spec.operator
        if type(task).update is not CombiningTask.update:
            self._update(address, {key: [partial] for key, partial in partials.items()}, {}, state)
            return
        held = state.states.setdefault(spec.name, {})
        merge, find = merge_function(spec), held.get
        out: list[Record] = []
        append = out.append
        rest = iter(partials.items())
        while True:
            key = partial = None
            try:
                for key, partial in rest:
                    old = find(key)
                    new = partial if old is None else merge(old, partial)
                    held[key] = new
                    append(_new(Record, (key, new, None)))
            except BaseException as error:
                self._flow.error_handler(vertex, address[2])(Record(key, partial), error, None)
            else:
                break
        for record in out:
            if record[1] is None:
                held.pop(record[0], None)
        state.changed(spec.name, list(partials))
        if type(task).result is not CombiningTask.result:
            out = self._results(address, task, out)
        if type(task) is not Count:
            out = copy_mutable_values(out)
        self._flow.leave(vertex, address[2], [(spec.outputs[0], out)])

    def _results(self, address: Address, task: CombiningTask, states: list[Record]) -> list[Record]:
        out = []
        for key, state, _ in states:
            try:
                out.append(Record(key, result_of(task, state)))
            except BaseException as error:
                self._flow.error_handler(address[0], address[2])(
                    Record(key, copy_if_mutable(state)), error, None
                )
        return out

    def _update(
        self, address: Address, groups: dict[Any, list[Any]], stamps: dict[Any, float], state: BucketState
    ) -> None:
        vertex = address[0]
        spec = self._vertices[vertex]
        out: list[Record] = []
        if spec.policy.goes_on:
            for key, values in groups.items():
                self._update_one_by_one(vertex, address[2], key, values, stamps.get(key), state, out)
        else:
            held = state.states.setdefault(spec.name, {})
            task, find = spec.operator, held.get
            key, values = None, []
            try:
                for key, values in groups.items():
                    new = run_update(task, key, values, find(key), stamps.get(key), out)
                    if new is None:
                        held.pop(key, None)
                    else:
                        held[key] = new
            except BaseException as error:
                self._flow.error_handler(vertex, address[2])(Record(key, values), error, None)
            state.changed(spec.name, list(groups))
        self._flow.leave(vertex, address[2], [(spec.outputs[0], out)])

    def _update_one_by_one(
        self,
        vertex: int,
        counters: Counters,
        key: Any,
        values: list[Any],
        ts: float | None,
        state: BucketState,
        out: list[Record],
    ) -> None:
        """Call ``update`` with all values; if it raises, value by value, to lose only failing values."""
        spec = self._vertices[vertex]
        if len(values) > 1 and spec.policy.discard:
            trial: list[Record] = []
            try:
                known = state.states.get(spec.name, {}).get(key)
                new = run_update(spec.operator, key, copy_values(values), copy_if_mutable(known), ts, trial)
            except Exception:
                for value in values:
                    update_key(self._flow, vertex, counters, spec, state, key, [value], ts, out)
            else:
                out += trial
                store_state(state, spec.name, key, new)
        else:
            update_key(self._flow, vertex, counters, spec, state, key, values, ts, out)


def _in_time(blueprint: Blueprint, vertex: int) -> bool:
    return isinstance(blueprint.vertices[vertex].window, TimeWindow)
