"""The vertices of a job, their ports, ``>>`` between them, and the schemas that they declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from penstock.errors import SettingError, label, shown
from penstock.graph.connector_api import Source
from penstock.graph.operators import Fault
from penstock.graph.tasks import DEFAULT_INPUT, DEFAULT_OUTPUT, StatefulTask, Task
from penstock.schema.data_types import StructType
from penstock.schema.record_schema import Schema

if TYPE_CHECKING:
    from penstock.graph.edge import Partitioning
    from penstock.graph.job import Job
    from penstock.graph.qos import QoS


Kind = Literal["source", "task", "sink"]

DISCARDED, LATE, ERRORS = "discarded", "late", "errors"
SIDE_STREAMS = (DISCARDED, LATE, ERRORS)
"""Output ports that every vertex has in addition to its own. They may be left unconnected: their records are
also in the job's side streams of the same names."""


class Endpoint:
    """An operand of ``>>``: a vertex or a port of a vertex."""

    # Python can iterate over any object with __getitem__; this iteration would never end.
    __iter__ = None
    __contains__ = None

    def _vertex(self) -> Vertex:
        raise NotImplementedError

    def _output(self) -> str:
        raise NotImplementedError

    def _input(self) -> str:
        raise NotImplementedError

    def _passed(self) -> Endpoint:
        """Return the endpoint from which a chain continues after an edge into this one."""
        return self

    @overload
    def __rshift__(self, other: Vertex) -> Vertex: ...
    @overload
    def __rshift__(self, other: PortRef) -> PortRef: ...
    @overload
    def __rshift__(self, other: Sequence[Endpoint]) -> list[Endpoint]: ...
    def __rshift__(self, other: Endpoint | Sequence[Endpoint]) -> Endpoint | list[Endpoint]:
        if isinstance(other, list | tuple):
            targets = [_as_endpoint(item) for item in other]
            return [_connect(self, target) for target in targets]
        return _connect(self, _as_endpoint(other))

    def __rrshift__(self: AnyEndpoint, others: Sequence[Endpoint]) -> AnyEndpoint:
        if not isinstance(others, list | tuple):
            _as_endpoint(others)
        passed: Any = self
        for item in [_as_endpoint(item) for item in others]:
            passed = _connect(item, self)
        return passed  # type: ignore[no-any-return]


AnyEndpoint = TypeVar("AnyEndpoint", bound=Endpoint)


@dataclass(eq=False, repr=False)
class Vertex(Endpoint):
    """A source, a task or a sink of one job. Made by ``job.source``, ``job.task`` and ``job.sink``."""

    job: Job
    index: int
    """The number of the vertex in the order of adding."""
    name: str
    kind: Kind
    operator: Any
    """A Source, a Sink, or an instance of FunctionTask, Task or StatefulTask."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parallelism: int | None = None
    max_iterations: int | None = None
    qos: QoS | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    """The argument of the operator's ``prepare``."""
    window: Any = None
    """A TimeWindow or a CountWindow, or None."""
    schema: Any = None
    """The declared schema of output values, in any form that Schema.of reads; None for arbitrary objects."""
    input_schema: Any = None
    """The declared schema of input values, or None."""
    on_error: Any = None
    """The error policy of the vertex; None means that of the job."""
    faults: tuple[Fault, ...] = ()
    """Faults of the operator, which validation reports."""

    @property
    def sync(self) -> bool:
        """Whether the input ports are synchronised, so that records may have to wait."""
        return isinstance(self.operator, Task) and self.operator.sync is True and len(self.inputs) > 1

    @property
    def alignment(self) -> Partitioning | None:
        """How the input ports are aligned: by key or by order of arrival; None if they are not."""
        if not self.sync:
            return None
        return next((edge.by for edge in self.job.edges if edge.target == self.index), None)

    @property
    def stateful(self) -> bool:
        """Whether the vertex keeps state by key."""
        return isinstance(self.operator, StatefulTask) or self.sync

    @property
    def windowed_source(self) -> bool:
        """Whether the vertex is a source with windows of records."""
        return self.kind == "source" and self.window is not None

    def is_side_port(self, port: str) -> bool:
        """Return whether an output port is a side stream; ports that the vertex declares are not."""
        return port in SIDE_STREAMS and port not in self.outputs

    @property
    def label(self) -> str:
        """The name, or a text for an invalid name."""
        return label(self.name)

    def __getitem__(self, port: str) -> PortRef:
        """Return a port: an output port on the left side of ``>>``, an input port on the right."""
        return PortRef(self, label(port))

    def __repr__(self) -> str:
        return f"<{self.kind} {self.label!r}>"

    def _vertex(self) -> Vertex:
        return self

    def _output(self) -> str:
        return _default_port(self.outputs, DEFAULT_OUTPUT)

    def _input(self) -> str:
        return _default_port(self.inputs, DEFAULT_INPUT)


@dataclass(frozen=True, eq=False, repr=False)
class PortRef(Endpoint):
    """A port of a vertex, as in ``v0["unknown"] >> v4`` and ``a >> join["left"]``."""

    vertex: Vertex
    port: str
    passed: bool = False
    """Whether an edge leads into this input port, so that the chain continues from the default output."""

    def __repr__(self) -> str:
        return f"{self.vertex!r}[{self.port!r}]"

    def _vertex(self) -> Vertex:
        return self.vertex

    def _output(self) -> str:
        return self.vertex._output() if self.passed else self.port

    def _input(self) -> str:
        return self.port

    def _passed(self) -> PortRef:
        return PortRef(self.vertex, self.port, passed=True)


def edge_endpoints(left: Any, right: Any) -> tuple[Vertex, str, Vertex, str]:
    """Return the vertex and output port on the left and the vertex and input port on the right."""
    left, right = _as_endpoint(left), _as_endpoint(right)
    return left._vertex(), left._output(), right._vertex(), right._input()


def _connect(left: Endpoint, right: Endpoint) -> Endpoint:
    left._vertex().job.connect(left, right)
    return right._passed()


def _as_endpoint(value: Any) -> Endpoint:
    if isinstance(value, Endpoint):
        return value
    raise TypeError(f'both sides of an edge must be vertices or ports such as v["port"], not {shown(value)}')


def _default_port(ports: tuple[str, ...], usual: str) -> str:
    """Return the default port of a vertex; "" if the user must choose."""
    if len(ports) == 1:
        return ports[0]
    return usual if usual in ports else ""


def schema_of(vertex: Vertex, side: str) -> Schema | None:
    """Return a declared schema; None if there is none or it is invalid."""
    given = getattr(vertex, side)
    try:
        return None if given is None else Schema.of(given)
    except SettingError:
        return None


def columns_of(vertex: Vertex) -> Schema | None:
    """Return the output schema of a vertex: its own, or that of the files that a source reads."""
    declared = schema_of(vertex, "schema")
    if declared is not None or vertex.kind != "source" or not isinstance(vertex.operator, Source):
        return declared
    try:
        found = Schema.of(vertex.operator.describe().get("schema"))
    except SettingError:
        return None
    chosen = getattr(vertex.operator, "columns", None)
    if chosen is None:
        return found
    return Schema(StructType(tuple(field for field in found.fields if field.name in chosen)))
