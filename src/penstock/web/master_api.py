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
    status: told for status, told in error_responses().items() if status in (400, 403, 413, 421)
}


def health_routes(service: MasterService) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["health"], responses=_ERRORS, default_response_class=AsciiJSONResponse)

    @router.head("/livez", include_in_schema=False)
    @router.get("/livez", responses={200: {"content": {"text/plain": {}}}}, response_class=PlainTextResponse)
    async def livez() -> str:
        """Whether the process answers at all."""
        return "ok"

    @router.head("/readyz", include_in_schema=False)
    @router.get("/readyz", responses={200: {"model": Readiness}, 503: {"model": Readiness}})
    def readyz() -> Response:
        """Whether this master can serve requests: it is connected and knows a leader."""
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
        """Figures for Prometheus."""
        return PlainTextResponse(service.metrics(), media_type=_PROMETHEUS)

    return router


_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
    }
}


def bundle_routes(service: MasterService) -> APIRouter:
    """Return the routes."""
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
            Header(alias="X-Penstock-Signature", pattern=DIGEST, description="By the cluster's signing key."),
        ],
    ) -> Response:
        """Keep a bundle, so that a submission can name it. To put it once more is no error."""
        data = await request.body()
        return AsciiJSONResponse(await run_in_threadpool(service.put_bundle, sha256, signature, data), 201)

    return router


def cluster_routes(service: MasterService) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["cluster"], default_response_class=AsciiJSONResponse)

    @router.get("/cluster", responses={200: {"model": ClusterView}, **error_responses()})
    def cluster() -> Response:
        """The cluster as a whole: who leads, how many nodes and jobs there are."""
        return AsciiJSONResponse(service.cluster())

    @router.get("/nodes", responses={200: {"model": list[NodeView]}, **error_responses()})
    def nodes() -> Response:
        """Every node."""
        return AsciiJSONResponse(service.nodes())

    @router.get("/nodes/{node}", responses={200: {"model": NodeView}, **error_responses(404)})
    def node(node: NodeName) -> Response:
        """One node."""
        return AsciiJSONResponse(service.node(node))

    @router.post("/rebalance", responses={200: {"model": RebalanceView}, **error_responses(409)})
    def rebalance(request: RebalanceRequest | None = None) -> Response:
        """Move drivers from full nodes to emptier ones, or only say which would move."""
        return AsciiJSONResponse(service.rebalance(request is not None and request.dry_run))

    @router.get("/alarms", responses={200: {"model": list[Alarm]}, **error_responses()})
    def alarms() -> Response:
        """Every alarm, the newest first."""
        return AsciiJSONResponse(redacted(service.alarms()))

    @router.delete("/alarms/{alarm}", status_code=204, responses={**error_responses(404, 409)})
    def clear(alarm: AlarmId) -> Response:
        """Take an alarm back; that of a failed job lets it run again."""
        service.clear(alarm)
        return Response(status_code=204)

    return router


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
        """Change the resources of a job while it runs."""
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


def make_master_api(
    service: MasterService,
    token: str,
    *,
    hosts: Sequence[str],
    origins: Sequence[str] = (),
    limits: Limits | None = None,
) -> FastAPI:
    """Make the application of a master.

    ``hosts`` are the names and addresses that clients use in their URLs, with a port or for any port. The
    browser pages of ``origins`` may send requests; by default those of none.
    """
    guard = Middleware(MasterGuard, token=token, hosts=hosts, origins=origins, limits=limits or Limits())
    app = FastAPI(
        title="Penstock",
        summary="Stream jobs in Python that run on Spark.",
        version=__version__,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # A page with scripts from elsewhere has no place beside a token.
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
    # It only describes the token in the OpenAPI document: the guard has seen to it before.
    bearer = Security(HTTPBearer(auto_error=False, description="The cluster's token."))
    for routes in (cluster_routes, job_routes, bundle_routes):
        app.include_router(routes(service), prefix="/api/v1", dependencies=[bearer])
    app.include_router(health_routes(service))
    return app
