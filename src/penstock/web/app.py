"""The application that each master serves: routes, and the layers before them.

From the outside in: :class:`Closing` seals every answer, :class:`Guard` lets in who may ask,
:class:`LeaderForwarding` hands requests on to the leader, then come the routes. Everything needs the token
but
``/livez``, ``/readyz`` and ``/metrics``, which are of this master alone and need the right Host only.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer
from starlette.middleware import Middleware

from penstock import __version__
from penstock.daemons.interface import MasterService
from penstock.web.answers import AsciiJSONResponse, add_error_handlers
from penstock.web.closing import FinalResponseMiddleware
from penstock.web.forwarding import LeaderForwarding
from penstock.web.guarding import Limits, MasterGuard
from penstock.web.routes_bundles import bundle_routes
from penstock.web.routes_cluster import cluster_routes
from penstock.web.routes_health import health_routes
from penstock.web.routes_jobs import job_routes


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
