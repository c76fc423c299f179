"""Bodies of responses for the OpenAPI document. Only tests compare them with what is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from penstock.cluster.assignment_documents import Assignment, BackupLocation, BackupStatus
from penstock.cluster.job_documents import JobSpec, JobStatus
from penstock.cluster.node_documents import MasterInfo, NodeInfo, NodeReport
from penstock.cluster.worker_documents import Difference, Failures, Progress, Result, WorkerInfo


@dataclass(frozen=True)
class ClusterView:
    """The cluster as a whole."""

    epoch: int
    leader: str
    since: float
    masters: tuple[MasterInfo, ...]
    nodes: int
    jobs: int
    version: str


@dataclass(frozen=True)
class NodeView(NodeInfo):
    """A node, how it is doing, and which jobs it has."""

    report: NodeReport | None = None
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True)
class MoveView:
    """A driver that moves to an emptier node."""

    job: str
    origin: str
    target: str
    reason: str


@dataclass(frozen=True)
class RebalanceView:
    """Which drivers move, and whether they were told to."""

    moves: tuple[MoveView, ...]
    applied: bool


@dataclass(frozen=True)
class JobSummary:
    """A job in a list."""

    name: str
    phase: str
    reason: str
    since: float
    generation: int
    node: str
    executors: int
    progress: Progress | None
    failures: int
    k: int
    safety: str


@dataclass(frozen=True)
class ReplicaView:
    """One of a job's replicas, by what its worker last said."""

    number: int
    node: str
    phase: str
    """That of its worker; ``assigned`` while its node has none, ``missing`` while it has no node."""
    revision: int
    generation: int
    batch: int | None
    """Its last batch, and by how many it is behind; null before its worker tells."""
    behind: int | None
    in_step: bool
    caught_up: float
    whole: bool
    differed: Difference | None
    failures: int
    reason: str


@dataclass(frozen=True)
class JobView:
    """All about a job."""

    name: str
    phase: str
    reason: str
    since: float
    generation: int
    node: str
    executors: int
    progress: Progress | None
    spec: JobSpec
    status: JobStatus | None
    assignment: Assignment | None
    workers: tuple[WorkerInfo, ...]
    result: Result | None
    failures: Failures | None
    k: int
    safety: str
    replicas: tuple[ReplicaView, ...]


@dataclass(frozen=True)
class PlacementView:
    """Why a job runs where it does."""

    job: str
    strategy: str
    asked_for: str
    refused: str
    matrix: dict[str, str]
    cost: dict[str, float]
    weights: dict[str, float]
    rejected: dict[str, dict[str, str]]
    unplaced: dict[str, str]
    nodes: tuple[dict[str, Any], ...]
    location: BackupLocation | None
    kept: BackupStatus | None


@dataclass(frozen=True)
class ChangeView:
    """What was written; it happens soon after. The job itself tells how far it is."""

    name: str
    generation: int
    reason: str


class LogLine(BaseModel):
    """A line of a job's log. It has further fields, as the event brings them; with replicas, ``replica``."""

    model_config = ConfigDict(extra="allow")

    timestamp: str
    level: str
    event: str
    process: str
    node: str
    job: str


class LogPage(BaseModel):
    """Lines of a job's log, and where the next ones begin."""

    lines: list[LogLine]
    cursor: str


class Readiness(BaseModel):
    """Whether requests can be served, and why not."""

    ready: bool
    reason: str


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str
    message: str


class ErrorView(BaseModel):
    """Every answer to a request that is not granted."""

    error: ErrorDetail


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the answers that any request can get instead of what it asked for, and some more."""
    told = {
        400: "The path, the query or the body cannot be read.",
        401: "The token is missing or wrong.",
        403: "The Origin of the request is not allowed.",
        404: "There is no such job, node, alarm or page.",
        409: "The request is refused in the current state; the message says why.",
        413: "The body is too large.",
        421: "The Host is not served here.",
        422: "The request is not valid.",
        502: "The leader cannot be reached.",
        503: "There is no leader, or the store does not answer.",
    }
    wanted = sorted({400, 401, 403, 413, 421, 422, 502, 503, *statuses})
    return {status: {"model": ErrorView, "description": told[status]} for status in wanted}
