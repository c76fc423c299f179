"""``/cluster``, ``/nodes``, ``/alarms``: what there is and how it is doing."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from penstock.cluster.documents import Alarm
from penstock.daemons.interface import MasterService
from penstock.web.answers import AsciiJSONResponse
from penstock.web.redacting import redacted
from penstock.web.schemas import AlarmId, NodeName, RebalanceRequest
from penstock.web.views import ClusterView, NodeView, RebalanceView, error_responses


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
