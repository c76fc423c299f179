"""Job specs, assignments and cluster states of tests.

Each setting is one argument, whatever group it is in, and replicas are written as texts, ``job~1``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from penstock.cluster.assignment_documents import Assignment, ExecutorSlot
from penstock.cluster.client_requests import Submission
from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.job_documents import JobSpec
from penstock.job_settings import JobSettings, Resources, declarations
from penstock.replicas.replica_id import ReplicaId

T = TypeVar("T")

_PATHS = {each.flag.removeprefix("--").replace("-", "_"): each.path for each in declarations(JobSettings)}
_PATHS |= {name: ("placement", name) for name in ("nodes", "labels")}
_BY_REPLICA = ("assignments", "workers", "results", "failures")
_PATHS["executors_asked"] = ("resources", "executors")
_PATHS |= {name: (name,) for name in ("resources", "placement", "replicas", "spark")}


def with_settings(settings: JobSettings, **given: Any) -> JobSettings:
    """Return settings with some of them changed.

    >>> with_settings(JobSettings(), k=2, nodes=("n1",)).replicas.k
    2
    """
    for name, value in given.items():
        *groups, last = _PATHS[name]
        changed = {last: value}
        if groups:
            changed = {groups[0]: dataclasses.replace(getattr(settings, groups[0]), **changed)}
        settings = dataclasses.replace(settings, **changed)
    return settings


def replace(document: T, **changes: Any) -> T:
    """Return a copy with some fields changed, or some settings of a job or an assignment."""
    if isinstance(document, Assignment) and "executors" in changes and "executors_asked" not in changes:
        known = document.settings.resources.executors
        changes = {"executors_asked": known or len(changes["executors"]), **changes}
    if isinstance(document, ClusterState):
        changes |= {name: by_replica(changes[name]) for name in _BY_REPLICA if name in changes}
    own = {field.name for field in dataclasses.fields(document)}  # type: ignore[arg-type]
    settings = {name: changes.pop(name) for name in list(changes) if name not in own and name in _PATHS}
    if settings:
        changes["settings"] = with_settings(document.settings, **settings)  # type: ignore[attr-defined]
    return dataclasses.replace(document, **changes)  # type: ignore[type-var]


def by_replica(found: Mapping[str, T] | Mapping[ReplicaId, T]) -> dict[ReplicaId, T]:
    """Return a mapping by replica, given one by their texts.

    >>> by_replica({"job~1": "n2"})
    {ReplicaId(job='job', index=1): 'n2'}
    """
    return {ReplicaId.parse(str(replica)): one for replica, one in found.items()}


def make_state(**given: Any) -> ClusterState:
    """Return the state of a cluster."""
    return replace(ClusterState(), **given)


def make_spec(name: str, bundle: str, entry: str, **given: Any) -> JobSpec:
    """Return a job spec."""
    return replace(JobSpec(name, bundle, entry), **given)


def make_assignment(
    job: str,
    epoch: int,
    revision: int,
    generation: int,
    bundle: str,
    entry: str,
    node: str,
    cores: int = 1,
    memory: int = 1,
    executors: tuple[ExecutorSlot, ...] = (),
    **given: Any,
) -> Assignment:
    """Return an assignment. As many executors were asked for as it has, unless it says otherwise."""
    made = Assignment(job, epoch, revision, generation, bundle, entry, node, executors=executors)
    asked = given.pop("executors_asked", len(executors))
    return replace(made, cores=cores, memory=memory, executors_asked=asked, **given)


def given(**settings: Any) -> dict[str, Any]:
    """Return settings as a user gives them: nested plain data.

    >>> given(k=2, nodes=("n1",))
    {'replicas': {'k': 2}, 'placement': {'nodes': ['n1']}}
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        *groups, last = _PATHS[name]
        plain = dataclasses.asdict(value) if isinstance(value, Resources) else value
        inner = found.setdefault(groups[0], {}) if groups else found
        inner[last] = list(plain) if isinstance(plain, tuple) else plain
    return found


def make_submission(entry: str, structure: Mapping[str, Any], **said: Any) -> Submission:
    """Return a submission."""
    settings = {name: said.pop(name) for name in list(said) if name in _PATHS}
    return Submission(entry, structure, given(**settings), **said)
