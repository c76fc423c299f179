"""Time windows in a bucket: stores the records of open windows, and emits the results of closed ones."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

from penstock.engine.blueprint import VertexSpec
from penstock.engine.execution.parcels import Inbox
from penstock.engine.execution.partial_results import (
    Address,
    Cell,
    can_merge,
    copy_if_mutable,
    merge_function,
    merge_records,
)
from penstock.engine.execution.record_flow import Flow
from penstock.engine.execution.state_update import update_key
from penstock.engine.execution.vertex_step import emit
from penstock.engine.storage.keyed_state import BucketState, waiting_section
from penstock.engine.windows.window_assigner import WindowAssigner
from penstock.graph.tasks import CombiningTask
from penstock.graph.windows import PROCESSING_TIME, TimeWindow, Window, WindowValues, result_time
from penstock.record import Record


class Panes:
    """The time windows of one vertex in one bucket.

    Entries are stored by key and cell. Merged results have one entry for each key and cell; stored values
    also have one for each batch and lane, so that a batch writes only its own records.
    """

    def __init__(self, flow: Flow, vertex: int, spec: VertexSpec, state: BucketState, batch: int) -> None:
        assert isinstance(spec.window, TimeWindow)
        self._flow = flow
        self._vertex = vertex
        self._spec = spec
        self._window = spec.window
        self._state = state
        self._batch = batch
        self._section = waiting_section(spec.name)
        self._held = state.states.setdefault(self._section, {})
        index = state.indexes.get(self._section)
        if index is None:
            index = state.indexes[self._section] = _Index(self._held)
        self._index: _Index = index
        self._changed_entries: dict[tuple[Any, ...], bool] = {}
        """Entries that this batch has changed, each with whether the batch has created it."""

    def take(self, inbox: Inbox, address: Address, mark: float, now: float) -> None:
        """Store new records. ``mark`` is the watermark before this batch."""
        for (to, cell), partials in inbox.partials.items():
            if to == address and cell is not None:
                self._merge(cell, partials)
        for lane, cell, records in inbox.in_order(address):
            cells = {cell: records} if cell is not None else self._assign(records, mark, now)
            for its_cell, its_records in cells.items():
                self._keep(its_cell, lane, its_records)

    def _assign(self, records: list[Record], mark: float, now: float) -> dict[Cell, list[Record]]:
        """Return records from after the shuffle, where there are no lanes, by cell."""
        if self._window.time == PROCESSING_TIME:
            return {(self._window.first(now), self._window.last(now)): records}
        late = lambda record, watermark: self._flow.late(self._vertex, record, watermark)  # noqa: E731
        recover = self._flow.error_handler(self._vertex, self._flow.no_counters)
        wrong = lambda one, error: recover(one, error, None)  # noqa: E731
        # Their order has no meaning, so none of them makes another one late.
        return WindowAssigner(self._window, -inf, mark, ordered=False).assign(records, late, wrong)

    def _keep(self, cell: Cell, lane: str, records: list[Record]) -> None:
        if can_merge(self._spec):
            partials: dict[Any, Any] = {}
            recover = self._flow.error_handler(self._vertex, self._flow.no_counters)
            merge_records(self._spec, records, partials, recover)
            self._merge(cell, partials)
            return
        by_key: dict[Any, list[Record]] = {}
        for record in records:
            by_key.setdefault(record[0], []).append(record)
        for key, its_records in by_key.items():
            entry = (key, *cell, self._batch, lane)
            stamped = [(record[2], record[1]) for record in its_records]
            self._note(entry, new=entry not in self._held)
            self._held.setdefault(entry, []).extend(stamped)

    def _merge(self, cell: Cell, partials: dict[Any, Any]) -> None:
        merge = merge_function(self._spec)
        recover = self._flow.error_handler(self._vertex, self._flow.no_counters)
        held = self._held
        for key, partial in partials.items():
            entry = (key, *cell)
            old = held.get(entry)
            try:
                held[entry] = partial if old is None else merge(old, partial)
            except BaseException as error:
                recover(Record(key, partial), error, None)
                continue
            self._note(entry, new=old is None)

    def _note(self, entry: tuple[Any, ...], *, new: bool) -> None:
        self._index.add(entry)
        self._changed_entries[entry] = self._changed_entries.get(entry, new)

    def close(self, mark: float) -> float | None:
        """Emit the results of closed windows; return the end of the earliest open window."""
        if mark > -inf:
            upto = self._index.latest if mark == inf else self._window.first(mark) - 1
            out: list[Record] = []
            for key, index, entries in self._closing(upto):
                self._emit(key, index, entries, out)
            self._drop(upto)
            self._flow.leave(self._vertex, self._flow.no_counters, [(self._spec.outputs[0], out)])
        # Entries created and removed within the batch were never written, so no removal is written.
        changed = [entry for entry, new in self._changed_entries.items() if not new or entry in self._held]
        if changed:
            self._state.changed(self._section, changed)
        earliest = self._index.earliest
        return None if earliest is None else self._window.end(earliest)

    def _closing(self, upto: int) -> Iterable[tuple[Any, int, list[tuple[Any, ...]]]]:
        """Yield key, window and entries of every window up to an index, earliest first."""
        windows: dict[tuple[int, Any], list[tuple[Any, ...]]] = {}
        for entry in self._index.due(upto):
            for index in range(entry[1], min(entry[2], upto) + 1):
                windows.setdefault((index, entry[0]), []).append(entry)
        for index, key in sorted(windows, key=lambda window: window[0]):
            yield key, index, windows[index, key]

    def _drop(self, upto: int) -> None:
        """Remove entries that only closed windows need; others keep the part of their cell that is open."""
        # Of records with equal times, earlier ones are in cells that begin earlier.
        moved: dict[tuple[Any, ...], list[Any]] = {}
        for entry in self._index.due(upto):
            self._index.remove(entry)
            value = self._held.pop(entry)
            self._changed_entries.setdefault(entry, False)
            key, _, last, *rest = entry
            if last > upto:
                moved.setdefault((key, upto + 1, last, *rest), []).append(value)
        for entry, values in moved.items():
            known = self._held.get(entry)
            every = values if known is None else [*values, known]
            if can_merge(self._spec):
                self._held[entry], _ = self._merged(entry[0], every)
            else:
                self._held[entry] = [pair for stamped in every for pair in stamped]
            self._note(entry, new=known is None)

    def _emit(self, key: Any, index: int, entries: list[tuple[Any, ...]], out: list[Record]) -> None:
        start, end = index * self._window.slide, self._window.end(index)
        ts = result_time(start, end)
        if can_merge(self._spec):
            self._emit_merged(key, index, entries, ts, out)
        elif self._spec.kind == "source":
            records = self._values(entries)
            out.append(Record(None, Window(records, start, end), ts))
        else:
            values = WindowValues(self._values(entries), start, end)
            counters = self._flow.no_counters  # A window is never part of a loop.
            update_key(self._flow, self._vertex, counters, self._spec, self._state, key, values, ts, out)

    def _emit_merged(
        self, key: Any, index: int, entries: list[tuple[Any, ...]], ts: float, out: list[Record]
    ) -> None:
        task: CombiningTask = self._spec.operator
        recover = self._flow.error_handler(self._vertex, self._flow.no_counters)
        # What an earlier window failed to merge is in no later one. This order does not depend
        # on how many windows a batch closes, so the same merges fail in every case.
        entries = sorted((entry for entry in entries if entry in self._held), key=lambda entry: entry[2:0:-1])
        if not entries:
            return
        # A merge may modify its arguments, which later windows need unchanged.
        held = [
            self._held[entry] if entry[2] == index else copy_if_mutable(self._held[entry])
            for entry in entries
        ]
        merged, left_out = self._merged(key, held)
        for entry in (entries[place] for place in left_out):
            self._index.remove(entry)
            del self._held[entry]
            self._changed_entries.setdefault(entry, False)

        def result() -> list[Record]:
            # A failing call may have modified the state, and is repeated.
            state = copy_if_mutable(merged) if self._spec.policy.goes_on else merged
            if type(task).update is CombiningTask.update:
                return self._with_bounds(index, [Record(key, task.result(state), ts)])
            items: list[Record] = []
            emit(task.update(key, [state], None)[1], key, ts, items.append)
            return self._with_bounds(index, items)

        try:
            out += result()
        except BaseException as error:
            out += recover(Record(key, None, ts), error, result) or ()

    def _merged(self, key: Any, partials: list[Any]) -> tuple[Any, list[int]]:
        """Merge partial results, earlier ones first; also return the indexes of those that fail to merge."""
        merge = merge_function(self._spec)
        recover = self._flow.error_handler(self._vertex, self._flow.no_counters)
        state = partials[0]
        left_out: list[int] = []
        for place, partial in enumerate(partials[1:], 1):
            try:
                state = merge(state, partial)
            except BaseException as error:
                again = lambda state=state, partial=partial: (merge(state, partial),)  # noqa: E731
                done = recover(Record(key, partial), error, again)
                if done is None:
                    left_out.append(place)
                else:
                    [state] = done
        return state, left_out

    def _with_bounds(self, index: int, results: list[Record]) -> list[Record]:
        """Return results, with the bounds of their window if the window has ``with_bounds``."""
        if not self._window.with_bounds:
            return results
        start, end = index * self._window.slide, self._window.end(index)
        return [
            record._replace(value={"value": record.value, "start": start, "end": end}) for record in results
        ]

    def _values(self, entries: list[tuple[Any, ...]]) -> list[Any]:
        """Return copies of the values in a window: user code may modify them, and later windows need them."""
        values = [value for _, value in self._in_order(entries)]
        return (
            [copy_if_mutable(value) for value in values] if self._window.slide < self._window.size else values
        )

    def _in_order(self, entries: list[tuple[Any, ...]]) -> list[tuple[Any, Any]]:
        """Return times and values ordered by time, then by lane, then by the order within the lane."""
        ordered = sorted(entries, key=lambda entry: (entry[4], entry[3], entry[1], entry[2]))
        stamped = [pair for entry in ordered for pair in self._held[entry]]
        if self._window.time == PROCESSING_TIME:
            return stamped
        return sorted(stamped, key=lambda pair: pair[0])


class _Index:
    """Entries by their first window. Dicts serve as ordered sets."""

    def __init__(self, entries: Iterable[tuple[Any, ...]]) -> None:
        self._by_first: dict[int, dict[tuple[Any, ...], None]] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: tuple[Any, ...]) -> None:
        self._by_first.setdefault(entry[1], {})[entry] = None

    def remove(self, entry: tuple[Any, ...]) -> None:
        entries = self._by_first[entry[1]]
        del entries[entry]
        if not entries:
            del self._by_first[entry[1]]

    def due(self, upto: int) -> list[tuple[Any, ...]]:
        """Return the entries in windows up to an index."""
        return [e for first in sorted(self._by_first) if first <= upto for e in self._by_first[first]]

    @property
    def earliest(self) -> int | None:
        return min(self._by_first, default=None)

    @property
    def latest(self) -> int:
        return max((entry[2] for entries in self._by_first.values() for entry in entries), default=0)
