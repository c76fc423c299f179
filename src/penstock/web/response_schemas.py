"""Bodies of responses for the OpenAPI document. Only tests compare actual responses with them."""

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
    """The state of the cluster."""

    epoch: int
    leader: str
    since: float
    masters: tuple[MasterInfo, ...]
    nodes: int
    jobs: int
    version: str


@dataclass(frozen=True)
class NodeView(NodeInfo):
    """A node, its last report, and its jobs."""

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
    """The moves of drivers, and whether they were applied."""

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
    """A replica of a job, as last reported by its worker."""

    number: int
    node: str
    phase: str
    """The phase of its worker; ``assigned`` while it has no worker, ``missing`` while it has no node."""
    revision: int
    generation: int
    batch: int | None
    """Its last batch, and how many batches it is behind; null until its worker reports."""
    behind: int | None
    in_step: bool
    caught_up: float
    whole: bool
    differed: Difference | None
    failures: int
    reason: str


@dataclass(frozen=True)
class JobView:
    """A job with all its details."""

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
    """The placement of a job and the reasons for it."""

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
    """A change that was stored and takes effect soon after; the state of the job shows its progress."""

    name: str
    generation: int
    reason: str


class LogLine(BaseModel):
    """A line of a job's log, with further fields depending on the event; with replicas, ``replica``."""

    model_config = ConfigDict(extra="allow")

    timestamp: str
    level: str
    event: str
    process: str
    node: str
    job: str


class LogPage(BaseModel):
    """Lines of a job's log, and the cursor for the next page."""

    lines: list[LogLine]
    cursor: str


class Readiness(BaseModel):
    """Whether requests can be served, and why not."""

    ready: bool
    reason: str


class ErrorDetail(BaseModel):
    """The code and the message of an error."""

    code: str
    message: str


class ErrorView(BaseModel):
    """The body of every error response."""

    error: ErrorDetail


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the error responses that every request can get, and those with the given statuses."""
    descriptions = {
        400: "The path, the query or the body cannot be read.",
        401: "The token is missing or wrong.",
        403: "The Origin of the request is not allowed.",
        404: "There is no such job, node, alarm or page.",
        409: "The request is refused in the current state; the message says why.",
        413: "The body is too large.",
        421: "Requests for this Host are not served.",
        422: "The request is not valid.",
        502: "The leader cannot be reached.",
        503: "There is no leader, or the store does not answer.",
    }
    wanted = sorted({400, 401, 403, 413, 421, 422, 502, 503, *statuses})
    return {status: {"model": ErrorView, "description": descriptions[status]} for status in wanted}
