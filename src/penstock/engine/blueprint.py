"""The blueprint: a job, its plan and its folder as one picklable value for workers and the planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.engine.side_streams import SIDES
from penstock.engine.slot_table import SlotTable
from penstock.engine.storage.job_folder import JobFolders
from penstock.graph.connector_api import Sink, Source
from penstock.graph.edge import ROUND_ROBIN
from penstock.graph.error_policy import ErrorPolicy, read_on_error
from penstock.graph.job import Job
from penstock.graph.tasks import COLUMNAR_TASKS, FunctionTask, NativeTask
from penstock.graph.vertex import DISCARDED, ERRORS, LATE, Vertex, columns_of, schema_of
from penstock.graph.windows import AnyWindow
from penstock.parameters import params
from penstock.plan.physical_plan import PhysicalPlan, compile_plan
from penstock.replicas.agreement.agreement_protocol import ReplicaSpec
from penstock.replicas.agreement.held_output import HeldSink
from penstock.schema.record_schema import Schema
from penstock.setting_values import read_duration


@dataclass(frozen=True)
class VertexSpec:
    """One vertex in the form that the engine runs."""

    name: str
    kind: str
    operator: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    config: Mapping[str, Any]
    window: AnyWindow | None = None
    policy: ErrorPolicy = field(default_factory=ErrorPolicy)
    sync: bool = False
    """Whether its input ports are synchronised."""
    in_order: bool = False
    """Whether synchronised ports are aligned by order of arrival instead of by key."""
    takes_windows: bool = False
    """Whether it is a function of windows of records instead of records."""
    schema: Schema | None = None
    """The declared schema of its results."""
    input_schema: Schema | None = None
    """The declared schema of its input."""


@dataclass(frozen=True)
class Blueprint:
    """A job, its plan and its folder on disk."""

    job: str
    vertices: tuple[VertexSpec, ...]
    plan: PhysicalPlan
    buckets: int
    """The number of parts into which keys and their state are divided."""
    slots: int
    """The number of tasks of the keyed stage, between which the buckets are divided."""
    default_instances: int
    """The number of instances of vertices for which the job declares none: that of the job's first run, so
    that it is the same in every replica."""
    folders: JobFolders
    sides: Mapping[str, Sink]
    """The sink of each side stream."""
    guarantee: str = "exactly-once"
    interval: float = 0.0
    """Minimum seconds from the start of one batch to the start of the next."""
    lasting: bool = False
    """Whether the job's folder outlives the run, so that another process can read its state."""
    replica_spec: ReplicaSpec | None = None
    """The identity of this replica, in a job with replicas."""
    params: Mapping[str, str] = field(default_factory=dict)
    """The parameters of the job (``ps.params``)."""

    @property
    def sources(self) -> dict[str, Source]:
        """The sources by vertex name."""
        return {vertex.name: vertex.operator for vertex in self.vertices if vertex.kind == "source"}

    @property
    def sinks(self) -> dict[str, Sink]:
        """The sinks by vertex name, followed by the side streams that can receive records."""
        found = {vertex.name: vertex.operator for vertex in self.vertices if vertex.kind == "sink"}
        used = {
            DISCARDED: bool(self.plan.loops),
            LATE: any(vertex.window is not None for vertex in self.vertices),
            ERRORS: any(v.policy.discard or v.schema or v.input_schema for v in self.vertices)
            or bool(self.plan.native.slots),
        }
        return found | {SIDES[stream]: self.sides[stream] for stream, can in used.items() if can}

    @property
    def instances(self) -> dict[int, int]:
        """The number of instances of each vertex that has its own."""
        return {vertex: number or self.default_instances for vertex, number in self.plan.instances.items()}

    def slot_table(self, planned: Any) -> SlotTable:
        """Return the slot table of a batch; ``planned`` is that in its offset, if it has one."""
        return SlotTable.planned(planned, self.buckets, self.slots)

    @property
    def read_by_spark(self) -> tuple[str, ...]:
        """The sources that Spark itself can read: all their records go to vertices in Spark.

        Spark cannot skip unreadable records, so Python reads sources where these must be skipped.
        """
        return tuple(
            vertex.name
            for vertex in self.vertices
            if vertex.name in self.plan.native.sources
            and hasattr(vertex.operator, "native")
            and not vertex.policy.discard
        )

    def index_of(self, name: str) -> int:
        """Return the index of the named vertex."""
        return next(index for index, vertex in enumerate(self.vertices) if vertex.name == name)

    def with_ends(self, ends: Mapping[str, Source | Sink]) -> Blueprint:
        """Return the same job with other sources and sinks, by name."""
        vertices = tuple(
            replace(vertex, operator=ends[vertex.name]) if vertex.name in ends else vertex
            for vertex in self.vertices
        )
        return replace(self, vertices=vertices)

    def for_workers(self) -> Blueprint:
        """Return a copy for Spark's workers, without the parts that only the driver needs."""
        ends: dict[str, Source | Sink] = {name: source.on_worker() for name, source in self.sources.items()}
        made = self._without_native()
        if self.replica_spec is not None and self.replica_spec.holds:
            # Other sinks stage or reject records, which is the same in every replica and not visible outside.
            folder, primary = Path(self.replica_spec.scratch), self.folders.primary
            holdable = {name: sink for name, sink in self.sinks.items() if sink.holdable}
            ends |= {name: HeldSink(sink, folder, primary) for name, sink in holdable.items()}
        return made.with_ends(ends)

    def _without_native(self) -> Blueprint:
        """Remove the functions of DataFrames: they may refer to objects that only exist on the driver."""
        return replace(
            self,
            vertices=tuple(
                replace(v, operator=NativeTask(v.inputs, "string"))
                if isinstance(v.operator, NativeTask)
                else v
                for v in self.vertices
            ),
        )

    def for_planner(self) -> Blueprint:
        """Return a copy for the planner, without the code of tasks and sinks, which it never runs."""
        vertices = tuple(v if v.kind == "source" else replace(v, operator=None) for v in self.vertices)
        return replace(self, vertices=vertices, sides={})


def make_blueprint(
    job: Job, *, folder: Path, buckets: int, sides: Mapping[str, Sink], slots: int | None = None
) -> Blueprint:
    """Return the blueprint of a job; raises GraphError if the graph is invalid.

    Without a number of ``slots`` each bucket has its own.
    """
    plan = compile_plan(job)
    synced = job.durability == "batch"
    for sink in (*(vertex.operator for vertex in job.vertices if vertex.kind == "sink"), *sides.values()):
        if sink.synced is not synced:
            sink.synced = synced
    vertices = tuple(
        VertexSpec(
            name=vertex.name,
            kind=vertex.kind,
            operator=vertex.operator,
            inputs=tuple(vertex.inputs),
            outputs=tuple(vertex.outputs),
            config=dict(vertex.config or {}),
            window=vertex.window,
            policy=read_on_error(job.on_error if vertex.on_error is None else vertex.on_error),
            sync=vertex.sync,
            in_order=vertex.alignment is ROUND_ROBIN,
            takes_windows=isinstance(vertex.operator, FunctionTask) and _behind_window(job, vertex),
            schema=_declared(job, vertex),
            input_schema=schema_of(vertex, "input_schema"),
        )
        for vertex in job.vertices
    )
    return Blueprint(
        job.name,
        vertices,
        plan,
        buckets,
        slots or buckets,
        slots or buckets,
        JobFolders(str(folder), synced=synced),
        dict(sides),
        guarantee=job.guarantee,
        interval=read_duration(job.interval) if job.interval else 0.0,
        params=dict(params),
    )


def _behind_window(job: Job, vertex: Vertex) -> bool:
    """Return whether a vertex receives windows; validation rejects inputs of which only some are windows."""
    return any(
        job.vertices[edge.source].windowed_source
        for edge in job.edges
        if edge.target == vertex.index and not job.vertices[edge.source].is_side_port(edge.source_port)
    )


def _declared(job: Job, vertex: Vertex) -> Schema | None:
    """Return the output schema; that of files is used only if a vertex after the source needs columns."""
    needed = any(
        isinstance(job.vertices[edge.target].operator, COLUMNAR_TASKS)
        for edge in job.edges
        if edge.source == vertex.index
    )
    return columns_of(vertex) if needed else schema_of(vertex, "schema")
