"""A job, its plan and its folder as one picklable value, shipped to the workers and the planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.engine.side_streams import SIDES
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
    """One vertex, as the engine runs it."""

    name: str
    kind: str
    operator: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    config: Mapping[str, Any]
    window: AnyWindow | None = None
    policy: ErrorPolicy = field(default_factory=ErrorPolicy)
    sync: bool = False
    """Whether it runs for aligned sets of its inputs."""
    in_order: bool = False
    """Whether these are aligned by the order of coming, whatever the keys."""
    takes_windows: bool = False
    """Whether it is a function that is given windows of records instead of records."""
    schema: Schema | None = None
    """What comes out of it, where that is declared."""
    input_schema: Schema | None = None
    """What must go into it, where that is declared."""


@dataclass(frozen=True)
class Blueprint:
    """A job, its plan and its place on disk."""

    job: str
    vertices: tuple[VertexSpec, ...]
    plan: PhysicalPlan
    buckets: int
    folders: JobFolders
    sides: Mapping[str, Sink]
    """By side stream, where it is written."""
    guarantee: str = "exactly-once"
    interval: float = 0.0
    """Seconds from the beginning of one batch to that of the next, at least."""
    lasting: bool = False
    """Whether the job's folder outlives the run, so that another process will read its state."""
    replica_spec: ReplicaSpec | None = None
    """For one of several replicas: who it is."""
    params: Mapping[str, str] = field(default_factory=dict)
    """The parameters of the job, which its code reads as ``ps.params`` in every process."""

    @property
    def sources(self) -> dict[str, Source]:
        """The sources by vertex name."""
        return {vertex.name: vertex.operator for vertex in self.vertices if vertex.kind == "source"}

    @property
    def sinks(self) -> dict[str, Sink]:
        """The sinks by vertex name, and behind them the side streams that can get anything."""
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
        """How many instances each vertex has that has some of its own."""
        return {vertex: number or self.buckets for vertex, number in self.plan.instances.items()}

    @property
    def read_by_spark(self) -> tuple[str, ...]:
        """The sources that Spark itself can read: all that they give goes to vertices of Spark's own.

        Spark cannot leave out what it cannot read, so Python reads where that is to be left out.
        """
        return tuple(
            vertex.name
            for vertex in self.vertices
            if vertex.name in self.plan.native.sources
            and hasattr(vertex.operator, "native")
            and not vertex.policy.discard
        )

    def index_of(self, name: str) -> int:
        """Return the index of the vertex of that name."""
        return next(index for index, vertex in enumerate(self.vertices) if vertex.name == name)

    def with_ends(self, ends: Mapping[str, Source | Sink]) -> Blueprint:
        """Return the same job with other sources and sinks, by name."""
        vertices = tuple(
            replace(vertex, operator=ends[vertex.name]) if vertex.name in ends else vertex
            for vertex in self.vertices
        )
        return replace(self, vertices=vertices)

    def for_workers(self) -> Blueprint:
        """Return the blueprint without what only the driver needs."""
        ends: dict[str, Source | Sink] = {name: source.on_worker() for name, source in self.sources.items()}
        made = self._without_native()
        if self.replica_spec is not None and self.replica_spec.holds:
            # Other sinks stage what they get, or refuse it: in every replica alike, and all unseen as well.
            folder, primary = Path(self.replica_spec.scratch), self.folders.primary
            holdable = {name: sink for name, sink in self.sinks.items() if sink.holdable}
            ends |= {name: HeldSink(sink, folder, primary) for name, sink in holdable.items()}
        return made.with_ends(ends)

    def _without_native(self) -> Blueprint:
        """Leave the functions of DataFrames behind: they may hold what cannot leave the driver."""
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
        """Return the blueprint without the code of tasks and sinks: who plans batches runs none of it."""
        vertices = tuple(v if v.kind == "source" else replace(v, operator=None) for v in self.vertices)
        return replace(self, vertices=vertices, sides={})


def make_blueprint(job: Job, *, folder: Path, buckets: int, sides: Mapping[str, Sink]) -> Blueprint:
    """Make the blueprint of a job; raises GraphError when the graph is wrong."""
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
        JobFolders(str(folder), synced=synced),
        dict(sides),
        guarantee=job.guarantee,
        interval=read_duration(job.interval) if job.interval else 0.0,
        params=dict(params),
    )


def _behind_window(job: Job, vertex: Vertex) -> bool:
    """Whether a vertex is fed by a source that gives windows; validation sees to it that all are, or none."""
    return any(
        job.vertices[edge.source].windowed_source
        for edge in job.edges
        if edge.target == vertex.index and not job.vertices[edge.source].is_side_port(edge.source_port)
    )


def _declared(job: Job, vertex: Vertex) -> Schema | None:
    """Return the schema of what comes out; that of files only where a vertex behind them needs columns."""
    needed = any(
        isinstance(job.vertices[edge.target].operator, COLUMNAR_TASKS)
        for edge in job.edges
        if edge.source == vertex.index
    )
    return columns_of(vertex) if needed else schema_of(vertex, "schema")
