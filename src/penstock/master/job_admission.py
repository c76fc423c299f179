"""The conditions that a job has to meet before a master grants what is asked for it. Pure.

Each function raises a RequestError that says which one is not met, and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cluster.assignment_documents import BackupStatus
from penstock.cluster.client_requests import InvalidRequestError, RefusedError, Submission
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.node_documents import NodeInfo
from penstock.graph.job_compatibility import incompatibilities
from penstock.parameters import env_fault, params_fault
from penstock.replicas.decisions.replica_set import replica_count, shortage
from penstock.schedule.placement_strategies import UnknownStrategyError, check_strategy_name


def check_params(params: Mapping[str, str], env: Mapping[str, str | None]) -> None:
    """Refuse parameters and variables of the environment that no job can be given."""
    fault = params_fault(params) or env_fault(env)
    if fault is not None:
        raise InvalidRequestError(fault)


def check_strategy(name: str) -> None:
    """Refuse a placement strategy that does not exist."""
    try:
        check_strategy_name(name)
    except UnknownStrategyError as error:
        raise InvalidRequestError(str(error)) from error


def check_compatible(spec: JobSpec, submission: Submission) -> None:
    """Refuse code that cannot continue from the job's state. Its worker, which has that, checks again."""
    if not spec.structure:
        return
    try:
        found = incompatibilities(spec.structure, submission.structure, has_state=True, in_flight=False)
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidRequestError("the structure of the job is not one that job.to_dict() makes") from error
    if found:
        raise RefusedError(f"job {spec.name!r} cannot continue with this version: " + "; ".join(found))


def check_room(spec: JobSpec, before: JobSpec | None, nodes: Mapping[str, NodeInfo]) -> None:
    """Refuse replicas that the cluster has no nodes for; a job that lacks some already may get fewer."""
    lacking = shortage(spec, nodes)
    no_more = before is not None and replica_count(spec) <= replica_count(before)
    if lacking and not (no_more and before is not None and shortage(before, nodes)):
        raise RefusedError(f"job {spec.name!r} cannot have its replicas: {lacking}")


def check_data(spec: JobSpec, kept: BackupStatus | None, nodes: Mapping[str, NodeInfo]) -> None:
    """Refuse to restrict a job to nodes without the one that has its data: it could run on none of them."""
    allowed = spec.settings.placement.nodes
    if spec.settings.data_location != "node" or not allowed or kept is None or kept.origin in allowed:
        return
    is_forgotten = spec.fresh and kept.revision <= spec.forget
    if kept.origin in nodes and not is_forgotten:
        told = f"job {spec.name!r} keeps its data on {kept.origin}"
        raise RefusedError(f"{told}: include that node, or submit it from scratch (--fresh)")
