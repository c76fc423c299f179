"""``/jobs``: what users do with jobs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from penstock.daemons.interface import InvalidRequestError, MasterService
from penstock.web.answers import AsciiJSONResponse
from penstock.web.redacting import redacted
from penstock.web.schemas import (
    ForgetRequest,
    JobName,
    MigrateRequest,
    ParamsRequest,
    ReplicateRequest,
    ResubmitRequest,
    ScaleRequest,
    SubmissionRequest,
)
from penstock.web.views import ChangeView, JobSummary, JobView, LogPage, PlacementView, error_responses

_CHANGED: dict[int | str, dict[str, Any]] = {200: {"model": ChangeView}, **error_responses(404, 409)}


def job_routes(service: MasterService) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["jobs"], default_response_class=AsciiJSONResponse)

    @router.get("/jobs", responses={200: {"model": list[JobSummary]}, **error_responses()})
    def jobs() -> Response:
        """Every job, those that have ended too."""
        return AsciiJSONResponse(redacted(service.jobs()))

    @router.post("/jobs", status_code=201, responses={201: {"model": ChangeView}, **error_responses(409)})
    def submit(request: SubmissionRequest) -> Response:
        """Take a job in. Its bundle must have been put before."""
        return AsciiJSONResponse(redacted(service.submit(request.submission(), request.bundle)), 201)

    @router.get("/jobs/{job}", responses={200: {"model": JobView}, **error_responses(404)})
    def job(job: JobName) -> Response:
        """One job: what its user wants, where it runs, what its workers say."""
        return AsciiJSONResponse(redacted(service.job(job)))

    @router.delete("/jobs/{job}", responses=_CHANGED)
    def kill(
        job: JobName,
        drain: Annotated[bool, Query(description="Process first what the sources have.")] = False,
    ) -> Response:
        """End a job after its batch, or after all that its sources have."""
        return AsciiJSONResponse(redacted(service.kill(job, drain)))

    @router.get("/jobs/{job}/logs", responses={200: {"model": LogPage}, **error_responses(404)})
    def logs(
        job: JobName,
        cursor: Annotated[str, Query(max_length=30_000, description="Of the page before.")] = "",
        limit: Annotated[int, Query(ge=1, le=10_000, description="The most lines.")] = 500,
    ) -> Response:
        """Lines that the job's processes have logged on all nodes, in order of time."""
        return AsciiJSONResponse(service.logs(job, cursor, limit))

    @router.get("/jobs/{job}/placement", responses={200: {"model": PlacementView}, **error_responses(404)})
    def placement(job: JobName) -> Response:
        """Why a job runs where it does: the matrix, the cost of each term, and why not on other nodes."""
        return AsciiJSONResponse(redacted(service.placement(job)))

    @router.post("/jobs/{job}/update", responses=_CHANGED)
    def update(job: JobName, request: SubmissionRequest) -> Response:
        """Exchange the code of a job, and what is given of its replicas; it goes on from where it is."""
        submission = request.submission()
        name = submission.structure["name"]
        if name != job:
            raise InvalidRequestError(f"structure.name is {name!r}: an update cannot rename job {job!r}")
        return AsciiJSONResponse(redacted(service.update(job, submission, request.bundle)))

    @router.post("/jobs/{job}/params", responses=_CHANGED)
    def set_params(job: JobName, request: ParamsRequest) -> Response:
        """Change parameters of a job: a new worker goes on from where it is, with the same code."""
        return AsciiJSONResponse(redacted(service.set_params(job, request.params, request.env)))

    @router.post("/jobs/{job}/replicate", responses=_CHANGED)
    def replicate(job: JobName, request: ReplicateRequest) -> Response:
        """Change how many replicas a job has, and how they work together, while it runs."""
        return AsciiJSONResponse(redacted(service.replicate(job, request.changes())))

    @router.post("/jobs/{job}/migrate", responses=_CHANGED)
    def migrate(job: JobName, request: MigrateRequest) -> Response:
        """Move a job's driver to a node; of several replicas, the first one's."""
        return AsciiJSONResponse(redacted(service.migrate(job, request.node)))

    @router.post("/jobs/{job}/scale", responses=_CHANGED)
    def scale(job: JobName, request: ScaleRequest) -> Response:
        """Change what a job may use, while it runs."""
        nodes = None if request.nodes is None else tuple(request.nodes)
        return AsciiJSONResponse(redacted(service.scale(job, request.changes(), nodes)))

    @router.post("/jobs/{job}/resubmit", responses=_CHANGED)
    def resubmit(job: JobName, request: ResubmitRequest | None = None) -> Response:
        """Start a job that ended or failed again; a running one gets a new worker."""
        return AsciiJSONResponse(redacted(service.resubmit(job, request is not None and request.fresh)))

    @router.post("/jobs/{job}/forget", responses=_CHANGED)
    def forget(job: JobName, request: ForgetRequest | None = None) -> Response:
        """Remove all that is known of a job that is over, and if asked to what it has done."""
        return AsciiJSONResponse(redacted(service.forget(job, request is not None and request.data)))

    return router
