"""A job: a directed graph of sources, tasks and sinks, which may have cycles. Building it runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from penstock.errors import SettingError, choices, shown
from penstock.graph import graph_algorithms as _cycles
from penstock.graph.connector_api import Sink, Source
from penstock.graph.edge import ROUND_ROBIN, SAME_KEY, Edge, Partitioning
from penstock.graph.error_policy import Retry
from penstock.graph.operators import Operator, read_sink, read_source, read_task
from penstock.graph.qos import QoS, read_qos
from penstock.graph.sink_delivery import deliveries, warn_if_not_exactly_once
from penstock.graph.tasks import ArrowTask, FunctionTask, NativeTask, StatefulTask, Task
from penstock.graph.vertex import Endpoint, Kind, Vertex, edge_endpoints
from penstock.graph.windows import AnyWindow
from penstock.job_settings import Replicas

AnyTask = FunctionTask | Task | StatefulTask | ArrowTask | NativeTask
SparkValue = str | int | float | bool


class Job:
    """A stream job.

    Building a job never raises errors of its graph; :meth:`validate` reports all problems.

    >>> from penstock.graph.aggregations import Count
    >>> job = Job("wordcount")
    >>> split = job.task("split", lambda record: [(word, 1) for word in record.value.split()])
    >>> split >> job.task("count", Count())
    <task 'count'>
    >>> job.edges
    (Edge(source=0, source_port='out', target=1, target_port='in', by=<Partitioning.SAME_KEY: 'same-key'>),)
    """

    def __init__(
        self,
        name: str,
        *,
        mode: str = "throughput",
        guarantee: str = "exactly-once",
        durability: str = "none",
        k: int | None = None,
        replicas: Replicas | Mapping[str, Any] | None = None,
        qos: QoS | Mapping[str, Any] | None = None,
        max_iterations: int | None = None,
        parallelism: int | None = None,
        buckets: int | None = None,
        interval: str | None = None,
        on_error: str | Retry = "fail",
        spark: Mapping[str, SparkValue] | None = None,
    ) -> None:
        self.name = name
        self.mode = mode
        """How Spark runs the job: "throughput" (micro-batches)."""
        self.guarantee = guarantee
        """The effect of failures on the result: "exactly-once" (none), "at-least-once" (some of it is
        repeated), "at-most-once" (some of it is lost)."""
        self.durability = durability
        """The durability of the result: with "none" a power cut may lose the last batches, or repeat them in
        a sink that is more durable than the job's folder; with "batch" each batch is synced to the disk.
        """
        self.replicas = _read_replicas(k, replicas)
        """How the job is replicated; ``k=1`` is short for ``replicas=Replicas(k=1)``."""
        self.qos: QoS | None = read_qos(qos)
        self.max_iterations = max_iterations
        """The default limit of loops: how many times a record may return to the entry of a loop."""
        self.parallelism = parallelism
        """The number of Spark tasks that process keys at once, and the default number of instances of tasks
        that receive records from instances or by BROADCAST. Others run in the process of their records."""
        self.buckets = buckets
        """The number of buckets into which keys are divided, 128 by default. Tasks that process keys have
        several each; more buckets divide the load in smaller steps."""
        self.interval = interval
        """The minimum time from the start of one batch to the start of the next, such as "500ms"."""
        self.on_error = on_error
        """The action if user code raises: "fail" ends the job, "discard" puts the record into the ``errors``
        stream and continues, "retry" repeats the call first."""
        self.spark = cast("dict[str, SparkValue]", _copied(spark))
        """Spark settings, which override Penstock's defaults."""
        self.foreign: list[tuple[Vertex, Vertex]] = []
        """Edges with a vertex of another job."""
        self._vertices: tuple[Vertex, ...] = ()
        self._edges: list[Edge] = []

    def source(
        self,
        name: str,
        source: Source,
        *,
        window: AnyWindow | None = None,
        schema: Any = None,
        on_error: str | Retry | None = None,
    ) -> Vertex:
        """Add a vertex that reads records.

        With a ``window``, the vertices after it receive :class:`~penstock.graph.windows.Window` objects
        instead of single records. ``schema`` declares its values (see
        :class:`~penstock.schema.record_schema.Schema`).
        """
        vertex = self._add(name, "source", read_source(source))
        vertex.window = window
        vertex.schema = schema
        vertex.on_error = on_error
        return vertex

    def task(
        self,
        name: str,
        task: Callable[..., Any] | AnyTask | type[Task] | type[StatefulTask],
        *,
        parallelism: int | None = None,
        max_iterations: int | None = None,
        qos: QoS | Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        window: AnyWindow | None = None,
        schema: Any = None,
        input_schema: Any = None,
        on_error: str | Retry | None = None,
    ) -> Vertex:
        """Add a vertex that processes records: a function of a record, a Task or a StatefulTask.

        A vertex that processes columns is an ArrowTask, a Sql or a DataFrameTask.

        ``max_iterations`` is the limit of the loops whose entry is this vertex; ``config`` is passed to the
        task's ``prepare``. With a ``window``, a stateful task processes one window of a key at a time.
        ``schema`` declares the emitted values, ``input_schema`` those of the input; ``on_error`` overrides
        the job's.
        """
        vertex = self._add(name, "task", read_task(task))
        vertex.window = window
        vertex.schema = schema
        vertex.input_schema = input_schema
        vertex.on_error = on_error
        vertex.parallelism = parallelism
        vertex.max_iterations = max_iterations
        vertex.qos = read_qos(qos)
        vertex.config = cast("dict[str, Any]", _copied(config))
        return vertex

    def sink(
        self, name: str, sink: Sink, *, input_schema: Any = None, on_error: str | Retry | None = None
    ) -> Vertex:
        """Add a vertex that writes records."""
        vertex = self._add(name, "sink", read_sink(sink))
        vertex.input_schema = input_schema
        vertex.on_error = on_error
        return vertex

    def connect(self, source: Endpoint, target: Endpoint, by: Partitioning | None = None) -> None:
        """Add an edge between two vertices or their ports.

        The default of ``by`` is SAME_KEY into a stateful task and ROUND_ROBIN otherwise.
        """
        start, source_port, end, target_port = edge_endpoints(source, target)
        if start.job is not self or end.job is not self:
            # An edge between two jobs makes both of them invalid.
            owners = (start.job, end.job) if start.job is not end.job else ()
            for job in {id(job): job for job in (self, *owners)}.values():
                job.foreign.append((start, end))
            return
        if by is None:
            by = SAME_KEY if end.stateful else ROUND_ROBIN
        self._edges.append(Edge(start.index, source_port, end.index, target_port, by))

    @property
    def k(self) -> int:
        """How many machines may fail without interrupting the job; k + 1 replicas run."""
        return self.replicas.sound.k if isinstance(self.replicas, Replicas) else 0

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        """All vertices, in the order of adding."""
        return self._vertices

    @property
    def edges(self) -> tuple[Edge, ...]:
        """All edges, in the order of adding."""
        return tuple(self._edges)

    @property
    def sources(self) -> list[str]:
        """The names of the sources, in the order of adding."""
        return [vertex.label for vertex in self._vertices if vertex.kind == "source"]

    @property
    def sinks(self) -> list[str]:
        """The names of the sinks, in the order of adding."""
        return [vertex.label for vertex in self._vertices if vertex.kind == "sink"]

    def vertex(self, name: str) -> Vertex:
        """Return the vertex with a name."""
        for vertex in self._vertices:
            if vertex.label == name:
                return vertex
        known = choices(tuple(vertex.label for vertex in self._vertices))
        raise KeyError(f"job {shown(self.name)} has no vertex {shown(name)}; it has {known}")

    def adjacency(self) -> list[list[int]]:
        """Return the adjacency matrix: row i, column j is 1 when there is an edge from vertex i to j."""
        rows = [[0] * len(self._vertices) for _ in self._vertices]
        for edge in self._edges:
            rows[edge.source][edge.target] = 1
        return rows

    def cycles(self, limit: int = 10_000) -> list[list[str]]:
        """Return all elementary cycles, sorted, each starting at its earliest-added vertex.

        Raises :class:`~penstock.errors.CycleLimitError` if there are more than ``limit``.
        """
        return _cycles.job_cycles(self, limit)

    def validate(self) -> None:
        """Raise one :class:`~penstock.errors.GraphError` with all problems of the job, if there are any.

        For a job with replicas, a :class:`~penstock.errors.DeliveryWarning` names each sink that does not get
        every record exactly once; :meth:`delivery` returns the delivery of all sinks.
        """
        from penstock.graph.validation import validate

        validate(self)
        warn_if_not_exactly_once(self, stacklevel=2)

    def delivery(self) -> dict[str, str]:
        """Return the delivery guarantee of each sink for a job with replicas.

        "first-writer-wins": each record once. "by-the-winner": each batch once, and again if the delivering
        replica dies before it confirms. "every-replica": a copy from each replica, with ids by which
        :func:`penstock.deduplicated` drops the others. "by-the-primary": each record at most once, with
        ``publisher="primary"``.
        """
        return deliveries(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the structure of the job as plain data that is the same in every run."""
        from penstock.graph.job_document import to_dict

        return to_dict(self)

    def to_json(self) -> str:
        """Return the structure of the job as JSON that is the same in every run."""
        from penstock.graph.job_document import to_json

        return to_json(self)

    def explain(self) -> str:
        """Return a description of how Spark will run the job: regions, shuffles, loops and sinks."""
        # The only import of the planner by the graph; it lets a user do everything through one object.
        from penstock.plan.plan_text import explain_job

        return explain_job(self)

    def __repr__(self) -> str:
        return f"<job {shown(self.name)}: {len(self._vertices)} vertices, {len(self._edges)} edges>"

    def _add(self, name: str, kind: Kind, operator: Operator) -> Vertex:
        vertex = Vertex(
            self,
            len(self._vertices),
            name,
            kind,
            operator.runs,
            operator.inputs,
            operator.outputs,
            faults=operator.faults,
        )
        self._vertices += (vertex,)
        return vertex


def _read_replicas(k: int | None, replicas: Any) -> Replicas:
    if k is None:
        return cast("Replicas", Replicas.read(replicas))
    if replicas is not None:
        raise SettingError("give k or replicas to a job, not both: k=1 is short for replicas=Replicas(k=1)")
    return Replicas(k=k)


def _copied(given: Any) -> Any:
    """Return a copy of a mapping, so that later changes do not affect the job; other values unchanged."""
    if given is None:
        return {}
    return dict(given) if isinstance(given, Mapping) else given
