"""The REST API of a master.

Routes for jobs, nodes, alarms, bundles and health, and the middleware in front of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Header, Path, Query, Request, Security
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, Response

from penstock import __version__
from penstock.cluster.client_requests import InvalidRequestError
from penstock.cluster.job_documents import Alarm, BundleInfo
from penstock.master.master_service import MasterService
from penstock.web.api_responses import (
    RETRY_AFTER,
    AsciiJSONResponse,
    FinalResponseMiddleware,
    add_error_handlers,
    redacted,
)
from penstock.web.leader_forwarding import LeaderForwarding
from penstock.web.request_guard import Limits, MasterGuard
from penstock.web.request_schemas import (
    DIGEST,
    AlarmId,
    ForgetRequest,
    JobName,
    MigrateRequest,
    NodeName,
    ParamsRequest,
    RebalanceRequest,
    ReplicateRequest,
    ResubmitRequest,
    ScaleRequest,
    SubmissionRequest,
)
from penstock.web.response_schemas import (
    ChangeView,
    ClusterView,
    JobSummary,
    JobView,
    LogPage,
    NodeView,
    PlacementView,
    Readiness,
    RebalanceView,
    error_responses,
)

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: response for status, response in error_responses().items() if status in (400, 403, 413, 421)
}


def health_routes(service: MasterService) -> APIRouter:
    """Return the routes for probes and metrics."""
    router = APIRouter(tags=["health"], responses=_ERRORS, default_response_class=AsciiJSONResponse)

    @router.head("/livez", include_in_schema=False)
    @router.get("/livez", responses={200: {"content": {"text/plain": {}}}}, response_class=PlainTextResponse)
    async def livez() -> str:
        """Return ok if the process is alive."""
        return "ok"

    @router.head("/readyz", include_in_schema=False)
    @router.get("/readyz", responses={200: {"model": Readiness}, 503: {"model": Readiness}})
    def readyz() -> Response:
        """Return whether this master can serve requests: it is connected and knows a leader."""
        ready, reason = service.ready()
        content = {"ready": ready, "reason": reason}
        return (
            AsciiJSONResponse(content)
            if ready
            else AsciiJSONResponse(content, 503, {"Retry-After": RETRY_AFTER})
        )

    @router.head("/metrics", include_in_schema=False)
    @router.get(
        "/metrics", responses={200: {"content": {"text/plain": {}}}}, response_class=PlainTextResponse
    )
    def metrics() -> Response:
        """Return metrics for Prometheus."""
        return PlainTextResponse(service.metrics(), media_type=_PROMETHEUS)

    return router


_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
    }
}


def bundle_routes(service: MasterService) -> APIRouter:
    """Return the route for bundles."""
    router = APIRouter(tags=["bundles"], default_response_class=AsciiJSONResponse)

    @router.put(
        "/bundles/{sha256}",
        status_code=201,
        responses={201: {"model": BundleInfo}, **error_responses(409)},
        openapi_extra=_BODY,
    )
    async def put_bundle(
        request: Request,
        sha256: Annotated[str, Path(pattern=DIGEST, description="SHA-256 of the body.")],
        signature: Annotated[
            str,
            Header(
                alias="X-Penstock-Signature", pattern=DIGEST, description="With the cluster's signing key."
            ),
        ],
    ) -> Response:
        """Store a bundle, to which a submission can then refer. Storing it again is not an error."""
        data = await request.body()
        return AsciiJSONResponse(await run_in_threadpool(service.put_bundle, sha256, signature, data), 201)

    return router


def cluster_routes(service: MasterService) -> APIRouter:
    """Return the routes for the cluster, its nodes and its alarms."""
    router = APIRouter(tags=["cluster"], default_response_class=AsciiJSONResponse)

    @router.get("/cluster", responses={200: {"model": ClusterView}, **error_responses()})
    def cluster() -> Response:
        """Return the state of the cluster: its leader, its masters, the numbers of nodes and jobs."""
        return AsciiJSONResponse(service.cluster())

    @router.get("/nodes", responses={200: {"model": list[NodeView]}, **error_responses()})
    def nodes() -> Response:
        """Return all registered nodes."""
        return AsciiJSONResponse(service.nodes())

    @router.get("/nodes/{node}", responses={200: {"model": NodeView}, **error_responses(404)})
    def node(node: NodeName) -> Response:
        """Return a node."""
        return AsciiJSONResponse(service.node(node))

    @router.post("/rebalance", responses={200: {"model": RebalanceView}, **error_responses(409)})
    def rebalance(request: RebalanceRequest | None = None) -> Response:
        """Move drivers from full nodes to emptier ones, or with dry_run only return the moves."""
        return AsciiJSONResponse(service.rebalance(request is not None and request.dry_run))

    @router.get("/alarms", responses={200: {"model": list[Alarm]}, **error_responses()})
    def alarms() -> Response:
        """Return all alarms, the newest first."""
        return AsciiJSONResponse(redacted(service.alarms()))

    @router.delete("/alarms/{alarm}", status_code=204, responses={**error_responses(404, 409)})
    def clear(alarm: AlarmId) -> Response:
        """Clear an alarm; clearing that of a failed job lets the job run again."""
        service.clear(alarm)
        return Response(status_code=204)

    return router


_CHANGED: dict[int | str, dict[str, Any]] = {200: {"model": ChangeView}, **error_responses(404, 409)}


def job_routes(service: MasterService) -> APIRouter:
    """Return the routes for jobs."""
    router = APIRouter(tags=["jobs"], default_response_class=AsciiJSONResponse)

    @router.get("/jobs", responses={200: {"model": list[JobSummary]}, **error_responses()})
    def jobs() -> Response:
        """Return all jobs, including those that have ended."""
        return AsciiJSONResponse(redacted(service.jobs()))

    @router.post("/jobs", status_code=201, responses={201: {"model": ChangeView}, **error_responses(409)})
    def submit(request: SubmissionRequest) -> Response:
        """Submit a job. Its bundle must have been stored before."""
        return AsciiJSONResponse(redacted(service.submit(request.submission(), request.bundle)), 201)

    @router.get("/jobs/{job}", responses={200: {"model": JobView}, **error_responses(404)})
    def job(job: JobName) -> Response:
        """Return a job: its specification, where it runs, the state of its workers."""
        return AsciiJSONResponse(redacted(service.job(job)))

    @router.delete("/jobs/{job}", responses=_CHANGED)
    def kill(
        job: JobName,
        drain: Annotated[bool, Query(description="Process all available input first.")] = False,
    ) -> Response:
        """End a job after its current batch, or after all available input."""
        return AsciiJSONResponse(redacted(service.kill(job, drain)))

    @router.get("/jobs/{job}/logs", responses={200: {"model": LogPage}, **error_responses(404)})
    def logs(
        job: JobName,
        cursor: Annotated[str, Query(max_length=30_000, description="The cursor of the previous page.")] = "",
        limit: Annotated[int, Query(ge=1, le=10_000, description="Maximum number of lines.")] = 500,
    ) -> Response:
        """Return log lines of the job's processes on all nodes, in order of time."""
        return AsciiJSONResponse(service.logs(job, cursor, limit))

    @router.get("/jobs/{job}/placement", responses={200: {"model": PlacementView}, **error_responses(404)})
    def placement(job: JobName) -> Response:
        """Explain the placement of a job: matrix, terms of the cost, reasons against other nodes."""
        return AsciiJSONResponse(redacted(service.placement(job)))

    @router.post("/jobs/{job}/update", responses=_CHANGED)
    def update(job: JobName, request: SubmissionRequest) -> Response:
        """Replace the code of a job, and the given replica settings; it continues from its last batch."""
        submission = request.submission()
        name = submission.structure["name"]
        if name != job:
            raise InvalidRequestError(f"structure.name is {name!r}: an update cannot rename job {job!r}")
        return AsciiJSONResponse(redacted(service.update(job, submission, request.bundle)))

    @router.post("/jobs/{job}/params", responses=_CHANGED)
    def set_params(job: JobName, request: ParamsRequest) -> Response:
        """Change parameters of a job; a new worker continues from its last batch with the same code."""
        return AsciiJSONResponse(redacted(service.set_params(job, request.params, request.env)))

    @router.post("/jobs/{job}/replicate", responses=_CHANGED)
    def replicate(job: JobName, request: ReplicateRequest) -> Response:
        """Change the replica settings of a job while it runs."""
        return AsciiJSONResponse(redacted(service.replicate(job, request.changes())))

    @router.post("/jobs/{job}/migrate", responses=_CHANGED)
    def migrate(job: JobName, request: MigrateRequest) -> Response:
        """Move a job's driver to another node; for a job with replicas, the driver of replica 0."""
        return AsciiJSONResponse(redacted(service.migrate(job, request.node)))

    @router.post("/jobs/{job}/scale", responses=_CHANGED)
    def scale(job: JobName, request: ScaleRequest) -> Response:
        """Change the resources of a job while it runs."""
        nodes = None if request.nodes is None else tuple(request.nodes)
        return AsciiJSONResponse(redacted(service.scale(job, request.changes(), nodes)))

    @router.post("/jobs/{job}/resubmit", responses=_CHANGED)
    def resubmit(job: JobName, request: ResubmitRequest | None = None) -> Response:
        """Restart a job that has ended or failed; a running job gets a new worker."""
        return AsciiJSONResponse(redacted(service.resubmit(job, request is not None and request.fresh)))

    @router.post("/jobs/{job}/forget", responses=_CHANGED)
    def forget(job: JobName, request: ForgetRequest | None = None) -> Response:
        """Remove a job that has ended or failed, and on request its positions, state and other data."""
        return AsciiJSONResponse(redacted(service.forget(job, request is not None and request.data)))

    return router


def make_master_api(
    service: MasterService,
    token: str,
    *,
    hosts: Sequence[str],
    origins: Sequence[str] = (),
    limits: Limits | None = None,
) -> FastAPI:
    """Return the application of a master.

    ``hosts`` are the names and addresses that clients use in their URLs, with a port or for any port. Web
    pages of ``origins`` may send requests; by default no web page may.
    """
    guard = Middleware(MasterGuard, token=token, hosts=hosts, origins=origins, limits=limits or Limits())
    app = FastAPI(
        title="Penstock",
        summary="Stream jobs in Python that run on Spark.",
        version=__version__,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # That page loads scripts from other hosts, which could read the token.
        redoc_url=None,
        redirect_slashes=False,
        default_response_class=AsciiJSONResponse,
        middleware=[
            Middleware(FinalResponseMiddleware),
            guard,
            Middleware(LeaderForwarding, service=service),
        ],
    )
    add_error_handlers(app)
    # Only describes the token in the OpenAPI document: MasterGuard has checked it before.
    bearer = Security(HTTPBearer(auto_error=False, description="The cluster's token."))
    for routes in (cluster_routes, job_routes, bundle_routes):
        app.include_router(routes(service), prefix="/api/v1", dependencies=[bearer])
    app.include_router(health_routes(service))
    return app
