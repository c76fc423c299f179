"""``/livez``, ``/readyz`` and ``/metrics``: of this master alone, for what watches over it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from penstock.daemons.interface import MasterService
from penstock.web.answers import RETRY_AFTER, AsciiJSONResponse
from penstock.web.views import Readiness, error_responses

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
