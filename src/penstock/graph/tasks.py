"""The task classes that users write or instantiate.

Functions, tasks with ports, tasks with keyed state, and tasks on columns (Arrow, SQL, DataFrame). These are
definitions only; nothing here runs a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.record import Record

DEFAULT_INPUT = "in"
DEFAULT_OUTPUT = "out"


class FunctionTask:
    """A function of one record, which returns nothing, one item, or a list or iterator of items.

    As all code of a job, it must take the time and random numbers from ``ps.ctx``, because a batch may be
    repeated.
    """

    inputs: tuple[str, ...] = (DEFAULT_INPUT,)
    outputs: tuple[str, ...] = (DEFAULT_OUTPUT,)

    def __init__(self, function: Callable[[Record], Any]) -> None:
        self.function = function


class Inputs(Mapping[str, "list[Record]"]):
    """The records for one call of :meth:`Task.execute`, by port."""

    __slots__ = ("_by_port",)

    def __init__(self, by_port: dict[str, list[Record]]) -> None:
        self._by_port = by_port

    def __getitem__(self, port: str) -> list[Record]:
        return self._by_port[port]

    def __iter__(self) -> Any:
        return iter(self._by_port)

    def __len__(self) -> int:
        return len(self._by_port)

    def get(self, port: str | None = None, default: Any = None) -> Any:
        """Return the records of a port, or without a port those of all ports."""
        if port is not None:
            return self._by_port.get(port, default)
        return [record for records in self._by_port.values() for record in records]


class Outputs:
    """Collects the records that :meth:`Task.execute` emits."""

    __slots__ = ("_default", "_emitted", "_incoming")

    def __init__(self, ports: tuple[str, ...]) -> None:
        self._emitted: dict[str, list[Record]] = {port: [] for port in ports}
        self._default = ports[0] if len(ports) == 1 else None
        self._incoming = Record()

    def emit(self, key: Any, value: Any, *, port: str | None = None, ts: float | None = None) -> None:
        """Emit a record; the port is optional if the task has only one."""
        name = port if port is not None else self._default
        if name is None or name not in self._emitted:
            known = ", ".join(repr(known) for known in self._emitted)
            raise ValueError(f"no output port {name!r}: this task has {known}")
        self._emitted[name].append(Record(key, value, self._incoming.ts if ts is None else ts))

    def _cut(self, marks: dict[str, int]) -> None:
        """Remove records emitted after each port had the given number of records."""
        for port, mark in marks.items():
            del self._emitted[port][mark:]


class Task:
    """User code with named ports.

    ``execute`` is called once for each input record of any port. With ``sync = True`` and several input ports
    it is called once for each aligned set: one record from every port, with equal keys if the edges are
    SAME_KEY (the default), or in order of arrival if they are ROUND_ROBIN. Records without a counterpart wait
    in the job's state.

    >>> class Parity(Task):
    ...     outputs = ("even", "odd")
    ...     def execute(self, inputs, outputs):
    ...         for record in inputs.get():
    ...             outputs.emit(record.key, record.value, port="odd" if record.value % 2 else "even")
    """

    inputs: tuple[str, ...] = (DEFAULT_INPUT,)
    outputs: tuple[str, ...] = (DEFAULT_OUTPUT,)
    sync: bool = False

    def prepare(self, config: Mapping[str, Any]) -> None:
        """Open models, tables or connections. Called once in each worker process."""

    def execute(self, inputs: Inputs, outputs: Outputs) -> None:
        """Process the input records and emit results."""
        raise NotImplementedError(f"{type(self).__name__} does not define execute(self, inputs, outputs)")


class StatefulTask:
    """User code with one state for each key. Its input edges bring all records of a key together.

    >>> class Total(StatefulTask):
    ...     def update(self, key, values, state):
    ...         total = (state or 0) + sum(values)
    ...         return total, [(key, total)]
    """

    inputs: tuple[str, ...] = (DEFAULT_INPUT,)
    outputs: tuple[str, ...] = (DEFAULT_OUTPUT,)

    def prepare(self, config: Mapping[str, Any]) -> None:
        """Open models, tables or connections. Called once in each worker process."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, Iterable[Any]]:
        """Process the new values of a key; return its new state and the items to emit.

        ``state`` is None for a new key; returning None as the state removes the key.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define update(self, key, values, state)")


class CombiningTask(StatefulTask):
    """A stateful task whose values can be merged before the shuffle.

    Merging must be associative and commutative. It makes a keyed count cheap: a worker sends one partial
    result for each key and batch instead of every record. Each key with new values in a batch emits its
    result once.
    """

    faults: tuple[str, ...] = ()
    """Invalid arguments of the constructor, which validation reports."""

    def lift(self, value: Any) -> Any:
        """Return the partial result of one value."""
        raise NotImplementedError(f"{type(self).__name__} does not define lift(self, value)")

    def merge(self, left: Any, right: Any) -> Any:
        """Return the partial result of both."""
        raise NotImplementedError(f"{type(self).__name__} does not define merge(self, left, right)")

    def result(self, state: Any) -> Any:
        """Return the item to emit for a state: by default the state itself."""
        return state

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, Iterable[Any]]:
        """Merge partial results into the state and emit its result."""
        for partial in values:
            state = partial if state is None else self.merge(state, partial)
        return state, [(key, self.result(state))]


class ArrowTask:
    """A function of a ``pyarrow.RecordBatch`` that returns a batch, several batches, a table or None.

    The batch has a column for each field of the values, ``_ts`` when its records have times, and ``_key``
    when they have keys of one plain type. Columns ``_key`` and ``_ts`` of the result become the keys and
    times of its records. Without them, the records keep those of the input if there are as many of them.
    """

    inputs: tuple[str, ...] = (DEFAULT_INPUT,)
    outputs: tuple[str, ...] = (DEFAULT_OUTPUT,)

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function


class NativeTask:
    """The base class of vertices that Spark runs itself: :class:`Sql` and :class:`DataFrameTask`.

    Their input has the fields of the values as columns, and in addition ``_key`` and ``_ts``. The result need
    not have these two; records without them have no key and no time. ``key`` is the type of keys that come
    from Python.
    """

    inputs: tuple[str, ...] = (DEFAULT_INPUT,)
    outputs: tuple[str, ...] = (DEFAULT_OUTPUT,)

    def __init__(self, inputs: Sequence[str], key: str) -> None:
        self.inputs = inputs if isinstance(inputs, str) else tuple(inputs)  # type: ignore[assignment]
        self.key = key


class Sql(NativeTask):
    """A query over the input records, which are the view ``input``.

    With ``inputs`` each of these ports is a view with the port's name.

    >>> Sql("SELECT user, amount * 2 AS amount FROM input WHERE amount > 0").views
    {'in': 'input'}
    >>> Sql("SELECT * FROM web UNION ALL SELECT * FROM shop", inputs=("web", "shop")).views
    {'web': 'web', 'shop': 'shop'}
    """

    def __init__(self, query: str, *, inputs: Sequence[str] = (DEFAULT_INPUT,), key: str = "string") -> None:
        super().__init__(inputs, key)
        self.query = query

    @property
    def views(self) -> dict[str, str]:
        """The name of each port's view."""
        return {port: "input" if port == DEFAULT_INPUT else port for port in self.inputs}


class DataFrameTask(NativeTask):
    """A function of Spark DataFrames, one for each input port in order, that returns a DataFrame.

    It is called on the driver: once before the job starts, to check its result, and once for each batch.

    >>> DataFrameTask(lambda frame: frame.where("amount > 0")).inputs
    ('in',)
    """

    def __init__(
        self, function: Callable[..., Any], *, inputs: Sequence[str] = (DEFAULT_INPUT,), key: str = "string"
    ) -> None:
        super().__init__(inputs, key)
        self.function = function


COLUMNAR_TASKS = (ArrowTask, NativeTask)
