"""``/bundles``: the code of jobs, on its way in."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from penstock.cluster.documents import BundleInfo
from penstock.daemons.interface import MasterService
from penstock.web.answers import AsciiJSONResponse
from penstock.web.schemas import DIGEST
from penstock.web.views import error_responses

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
